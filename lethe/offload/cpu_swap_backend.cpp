#include "lethe/offload/cpu_swap_backend.h"

#include <algorithm>
#include <span>
#include <utility>

#include <pthread.h>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/offload/host_arena_impl.h"

namespace lethe {

CpuSwapBackend::CpuSwapBackend(std::unique_ptr<HostStore> store,
                               int64_t budget_bytes,
                               int64_t queue_length)
    : store_(std::move(store)),
      budget_bytes_(budget_bytes),
      queue_length_(static_cast<size_t>(queue_length)),
      arena_(std::make_unique<HostArena>(budget_bytes)),
      thread_([this] { run(); }) {}

CpuSwapBackend::~CpuSwapBackend() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  issued_.notify_all();
  thread_.join();
}

HostBlock CpuSwapBackend::alloc_host(int64_t bytes, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const std::optional<int64_t> offset = arena_->take(bytes);
  LETHE_CHECK(OutOfArena,
              offset.has_value(),
              "swap {} [budget]: layer inputs in {} must fit --offload-budget-mb {} ({}), got {} "
              "blocks with {} and a request for {} where the largest hole has {}; raise "
              "--offload-budget-mb, or shrink the micro-batch",
              owner,
              store_->name(),
              budget_bytes_ >> 20,
              bytes_text(budget_bytes_),
              arena_->blocks(),
              bytes_text(arena_->live()),
              bytes_text(bytes),
              bytes_text(arena_->largest_hole()));
  try {
    store_->reserve(*offset + bytes);
  } catch (...) {
    arena_->give(*offset);
    throw;
  }
  return {.offset = *offset, .bytes = bytes};
}

void CpuSwapBackend::free_host(const HostBlock& block) {
  const std::lock_guard lock(mutex_);
  arena_->give(block.offset);
}

TransferId CpuSwapBackend::issue_out(const void* device, const HostBlock& block) {
  return issue({.block = block, .from = device});
}

TransferId CpuSwapBackend::issue_in(const HostBlock& block, void* device) {
  return issue({.block = block, .to = device});
}

TransferId CpuSwapBackend::issue(const Copy& copy) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [this] { return queue_.size() < queue_length_; });
  queue_.push_back(copy);
  queue_peak_ = std::max(queue_peak_, static_cast<int64_t>(queue_.size()));
  const TransferId id = ++last_issued_;
  issued_.notify_one();
  return id;
}

bool CpuSwapBackend::done(TransferId id) const {
  const std::lock_guard lock(mutex_);
  return last_done_ >= id;
}

void CpuSwapBackend::wait(TransferId id) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return last_done_ >= id; });
  auto failure = failures_.extract(id);
  if (!failure.empty()) std::rethrow_exception(failure.mapped());
}

SwapBackendReport CpuSwapBackend::report() const {
  const std::lock_guard lock(mutex_);
  return {.host_bytes = arena_->live(),
          .host_bytes_peak = arena_->peak(),
          .host_blocks = arena_->blocks(),
          .queued = static_cast<int64_t>(queue_.size()),
          .queue_peak = queue_peak_};
}

// What was issued is done before the thread ends: somebody may be waiting for it.
void CpuSwapBackend::run() {
  ::pthread_setname_np(::pthread_self(), "lethe-swap");
  std::unique_lock lock(mutex_);
  for (;;) {
    issued_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Copy copy = queue_.front();
    queue_.pop_front();
    moved_.notify_all();
    lock.unlock();
    std::exception_ptr failure;
    try {
      perform(copy);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++last_done_;
    if (failure) failures_.emplace(last_done_, std::move(failure));
    moved_.notify_all();
  }
}

void CpuSwapBackend::perform(const Copy& copy) {
  const auto bytes = static_cast<size_t>(copy.block.bytes);
  if (copy.to == nullptr)
    store_->write(copy.block.offset, {static_cast<const std::byte*>(copy.from), bytes});
  else
    store_->read(copy.block.offset, {static_cast<std::byte*>(copy.to), bytes});
}

std::shared_ptr<SwapBackend> make_cpu_swap_backend(int64_t budget_bytes,
                                                   const std::filesystem::path& folder) {
  LETHE_CHECK(ConfigError,
              budget_bytes > 0,
              "swap [budget]: --offload-budget-mb must be >= 1, got {} bytes; give it what the "
              "layer inputs of the micro-batches under way need",
              budget_bytes);
  auto store = folder.empty() ? make_memory_store(budget_bytes) : make_file_store(folder);
  return std::make_shared<CpuSwapBackend>(std::move(store), budget_bytes);
}

}  // namespace lethe
