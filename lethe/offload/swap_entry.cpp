#include "lethe/offload/swap_entry.h"

#include <chrono>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/storage_guard.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;
using States = std::initializer_list<SwapState>;

constexpr States kUsable = {SwapState::Device,
                            SwapState::D2hIssued,
                            SwapState::Host,
                            SwapState::H2dIssued,
                            SwapState::Restored};

int64_t ns_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

uint32_t checksum_of(const void* data, int64_t bytes) {
  return crc32c({static_cast<const std::byte*>(data), static_cast<size_t>(bytes)});
}

// As large as the storage and of its device; it holds what some backward needs.
c10::Storage twin_of(c10::StorageImpl& storage, int64_t bytes) {
  const ByteTag tag(ByteCategory::Activations);
  c10::Allocator* allocator = storage.allocator();
  if (allocator == nullptr) allocator = c10::GetAllocator(storage.device_type());
  return {c10::Storage::use_byte_size_t(), bytes, allocator, /*resizable=*/true};
}

}  // namespace

std::string_view state_text(SwapState state) {
  constexpr std::string_view kTexts[] = {
      "Device", "D2H_Issued", "Host", "H2D_Issued", "Restored", "Removed", "Failed"};
  return kTexts[static_cast<size_t>(state)];
}

struct SwapEntry::Impl {
  Impl(std::string entry_name, const at::Tensor& t, std::shared_ptr<SwapBackend> b, bool check)
      : name(std::move(entry_name)),
        backend(std::move(b)),
        checked(check),
        storage(t.storage().getWeakStorageImpl()),
        version(t.unsafeGetTensorImpl()->version_counter()),
        first_version(version.enabled() ? version.current_version() : 0),
        bytes(static_cast<int64_t>(t.storage().nbytes())) {}

  ~Impl() { end(SwapState::Removed); }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void require(const char* call, States allowed) const;
  int64_t wait_for_copy(const char* direction);
  void end(SwapState last);
  template <class Kind>
  [[noreturn]] void fail_with(const std::string& text);
  [[nodiscard]] bool was_written() const;
  bool issue_in();
  SwapRestore finish_in();

  std::string name;
  std::shared_ptr<SwapBackend> backend;
  bool checked;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  c10::VariableVersion version;  // outlives the tensor
  uint32_t first_version;
  int64_t bytes;
  SwapState state = SwapState::Device;
  HostBlock block;
  TransferId transfer = 0;
  c10::Storage source;  // what a copy out reads
  c10::Storage buffer;  // what a copy in fills
  uint32_t checksum = 0;
  std::string failure;
};

void SwapEntry::Impl::require(const char* call, States allowed) const {
  std::vector<std::string_view> names;
  for (const SwapState one : allowed) {
    if (state == one) return;
    names.push_back(state_text(one));
  }
  lethe::fail<SwapError>(
      "swap {} [state]: {} needs an entry in {}, got one in {}{}; every forward makes entries of "
      "its own, which are restored before they are removed",
      name,
      call,
      fmt::join(names, " or "),
      state_text(state),
      failure.empty() ? "" : fmt::format(" ({})", failure));
}

// Waits for the copy under way, however it ends, and lets go of everything but the tensor's bytes.
void SwapEntry::Impl::end(SwapState last) {
  if (state == SwapState::D2hIssued || state == SwapState::H2dIssued) {
    try {
      backend->wait(transfer);
    } catch (...) {  // its result is not wanted any more
    }
  }
  if (block.offset >= 0) backend->free_host(std::exchange(block, HostBlock{}));
  source = c10::Storage();
  buffer = c10::Storage();
  state = last;
}

template <class Kind>
void SwapEntry::Impl::fail_with(const std::string& text) {
  end(SwapState::Failed);
  failure = text;
  throw Kind(text);
}

int64_t SwapEntry::Impl::wait_for_copy(const char* direction) {
  const auto start = Clock::now();
  const auto text = [&](const std::exception& cause) {
    return fmt::format(
        "swap {} [copy]: {} bytes must go {} the host tier, got \"{}\"; see to that, or run "
        "without --swap-layer-input",
        name,
        bytes,
        direction,
        cause.what());
  };
  try {
    backend->wait(transfer);
  } catch (const DataError& error) {
    fail_with<DataError>(text(error));  // the disk's fault, not the user's
  } catch (const std::exception& error) {
    fail_with<SwapError>(text(error));
  }
  return ns_since(start);
}

bool SwapEntry::Impl::was_written() const {
  const bool same_version = !version.enabled() || version.current_version() == first_version;
  return !same_version || static_cast<int64_t>(source.nbytes()) != bytes;
}

bool SwapEntry::Impl::issue_in() {
  const auto target = storage.lock();
  if (!target) {
    end(SwapState::Removed);
    return false;
  }
  c10::Storage twin = twin_of(*target, bytes);
  transfer = backend->issue_in(block, twin.mutable_data());
  buffer = std::move(twin);
  state = SwapState::H2dIssued;
  return true;
}

SwapRestore SwapEntry::Impl::finish_in() {
  SwapRestore result;
  result.prefetched = backend->done(transfer);
  result.wait_ns = wait_for_copy("back from");
  if (checked && checksum_of(buffer.data(), bytes) != checksum)
    fail_with<SwapError>(
        fmt::format("swap {} [checksum]: the {} bytes that come back must be those that went "
                    "out ({:08x}), got {:08x}; check the host tier",
                    name,
                    bytes,
                    checksum,
                    checksum_of(buffer.data(), bytes)));
  const auto target = storage.lock();
  if (target) refill_storage(*target, buffer);
  result.kind = target ? SwapRestore::Kind::CopiedIn : SwapRestore::Kind::Dropped;
  end(target ? SwapState::Restored : SwapState::Removed);
  return result;
}

SwapEntry::SwapEntry(std::string name,
                     const at::Tensor& tensor,
                     std::shared_ptr<SwapBackend> backend,
                     bool checked)
    : impl_(std::make_unique<Impl>(std::move(name), tensor, std::move(backend), checked)) {}

SwapEntry::SwapEntry(SwapEntry&&) noexcept = default;

SwapEntry& SwapEntry::operator=(SwapEntry&&) noexcept = default;

SwapEntry::~SwapEntry() = default;

void SwapEntry::issue_out(std::string_view situation) {
  impl_->require("issue_out", {SwapState::Device});
  auto storage = impl_->storage.lock();
  if (!storage) fail_internal(fmt::format("swap {}: the tensor is gone", impl_->name));
  c10::Storage source(std::move(storage));
  SwapBackend& backend = *impl_->backend;
  impl_->block = backend.alloc_host(impl_->bytes, fmt::format("{}{}", impl_->name, situation));
  try {
    impl_->transfer = backend.issue_out(source.data(), impl_->block);
  } catch (...) {
    impl_->end(SwapState::Device);
    throw;
  }
  impl_->source = std::move(source);
  impl_->state = SwapState::D2hIssued;
}

int64_t SwapEntry::release() {
  impl_->require("release", {SwapState::D2hIssued});
  const int64_t waited = impl_->wait_for_copy("out to");
  if (impl_->was_written())
    impl_->fail_with<SwapError>(
        fmt::format("swap {} [unchanged]: a layer input must stay as it is from its last reader in "
                    "forward to its release, got version {} of {} bytes where version {} of {} was "
                    "copied; write into a fresh tensor",
                    impl_->name,
                    impl_->version.enabled() ? impl_->version.current_version() : 0,
                    impl_->source.nbytes(),
                    impl_->first_version,
                    impl_->bytes));
  if (impl_->checked) impl_->checksum = checksum_of(impl_->source.data(), impl_->bytes);
  empty_storage(
      *impl_->source.unsafeGetStorageImpl(),
      fmt::format("swap {} [released]: a layer input must not be read while its bytes are "
                  "in the host tier, got a reader; it must come after the gradient of the "
                  "layer's output has arrived, or before the release",
                  impl_->name));
  impl_->source = c10::Storage();
  impl_->state = SwapState::Host;
  return waited;
}

int64_t SwapEntry::cancel() {
  impl_->require("cancel", {SwapState::D2hIssued});
  const auto start = Clock::now();
  impl_->end(SwapState::Device);
  return ns_since(start);
}

bool SwapEntry::prefetch() {
  impl_->require("prefetch", kUsable);
  return impl_->state == SwapState::Host && impl_->issue_in();
}

SwapRestore SwapEntry::restore() {
  impl_->require("restore", kUsable);
  if (impl_->state == SwapState::D2hIssued)
    return {.kind = SwapRestore::Kind::Cancelled, .wait_ns = cancel()};
  const bool late = impl_->state == SwapState::Host;
  if (late && !impl_->issue_in()) return {.kind = SwapRestore::Kind::Dropped};
  if (impl_->state != SwapState::H2dIssued) return {};
  SwapRestore result = impl_->finish_in();
  result.prefetched = result.prefetched && !late;
  return result;
}

void SwapEntry::remove() {
  impl_->require("remove", {SwapState::Device, SwapState::Restored});
  impl_->end(SwapState::Removed);
}

void SwapEntry::fail(const std::string& reason) {
  impl_->end(SwapState::Failed);
  impl_->failure = reason;
}

SwapState SwapEntry::state() const {
  return impl_->state;
}

const std::string& SwapEntry::name() const {
  return impl_->name;
}

int64_t SwapEntry::bytes() const {
  return impl_->bytes;
}

bool SwapEntry::owns(const at::Tensor& t) const {
  return t.defined() && t.has_storage() && !impl_->storage.expired() &&
         impl_->storage._unsafe_get_target() == t.storage().unsafeGetStorageImpl();
}

}  // namespace lethe
