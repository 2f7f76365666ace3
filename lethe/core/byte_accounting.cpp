#include "lethe/core/byte_accounting.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "lethe/base/error.h"
#include "lethe/core/block_cache.h"
#include "lethe/core/counted_block_impl.h"

namespace lethe {
namespace {

constexpr size_t index_of(ByteCategory category) {
  return static_cast<size_t>(category);
}

// All counters, changed together: the figures of one moment always add up. Allocations are few and
// large, an uncontended lock costs them nothing.
class Counters {
 public:
  // Before memory is taken: a refused request must not grow the process.
  void expect_room(int64_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_room(size);
  }

  void add(CountedBlock& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    check_room(block.size);  // again: another thread may have taken it
    now_.live += block.size;
    grow(block.size, block.category);
    if (watching_) {
      block.labels = labels_of_thread();
      watched_.add(block);
    }
    if (now_.live <= now_.peak) return;
    now_.peak = now_.live;
    now_.at_peak = now_.category_live;
  }

  void subtract(CountedBlock& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_.live -= block.size;
    now_.category_live[index_of(block.category)] -= block.size;
    if (block.after != nullptr) watched_.remove(block);
  }

  void move(CountedBlock& block, ByteCategory to) {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_.category_live[index_of(block.category)] -= block.size;
    grow(block.size, to);
    block.category = to;
  }

  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_.peak = now_.live;
    now_.category_peak = now_.at_peak = now_.category_live;
  }

  // Returns the limit before.
  int64_t limit(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(limit_, bytes);
  }

  ByteReport report() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }

  bool set_watching(bool on) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (watching_ == on) return false;
    watching_ = on;
    watched_.clear();
    return true;
  }

  LiveBlocks blocks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    LiveBlocks now;
    now.category = now.older = now_.category_live;
    watched_.for_each([&](const CountedBlock& block) {
      now.older[index_of(block.category)] -= block.size;
      now.blocks.push_back({.bytes = block.size,
                            .category = block.category,
                            .layer = label_text(block.labels.layer),
                            .node = label_text(block.labels.node),
                            .shape = label_text(block.labels.shape),
                            .dtype = label_text(block.labels.dtype)});
    });
    return now;
  }

  bool is_nameless(const CountedBlock& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return block.after != nullptr && block.labels.shape == 0;
  }

  void set_shape(CountedBlock& block, uint32_t shape, uint32_t dtype) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block.labels.shape != 0) return;
    block.labels.shape = shape;
    block.labels.dtype = dtype;
  }

 private:
  void check_room(int64_t size) const {
    LETHE_CHECK(
        OutOfArena,
        size <= limit_ - now_.live,
        "tensors [limit]: live bytes must be <= {}, got {} and a request for {} more; swap or "
        "recompute more, shrink the batch, or raise the limit",
        limit_,
        now_.live,
        size);
  }

  void grow(int64_t size, ByteCategory category) {
    const size_t c = index_of(category);
    now_.category_live[c] += size;
    now_.category_peak[c] = std::max(now_.category_peak[c], now_.category_live[c]);
  }

  std::mutex mutex_;
  ByteReport now_;
  bool watching_ = false;
  WatchedBlocks watched_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();
};

// Never destroyed: storages of static tensors are freed after main.
Counters& counters() {
  static auto* const instance = new Counters;
  return *instance;
}

// Below the counters; never destroyed, like them.
BlockCache& block_cache() {
  static auto* const instance = new BlockCache;
  return *instance;
}

void* take_memory(size_t size) {
  return size < BlockCache::kLeastBytes ? c10::GetDefaultCPUAllocator()->raw_allocate(size)
                                        : block_cache().take(size);
}

void give_memory(void* block, size_t size) {
  if (size < BlockCache::kLeastBytes)
    c10::GetDefaultCPUAllocator()->raw_deallocate(block);
  else
    block_cache().give(block, size);
}

std::atomic<bool> installed{false};
thread_local ByteCategory current_category = ByteCategory::Temporaries;

void release(void* data) {
  if (data == nullptr) return;
  CountedBlock* const header = static_cast<CountedBlock*>(data) - 1;
  counters().subtract(*header);
  give_memory(header, sizeof(CountedBlock) + static_cast<size_t>(header->size));
}

// nullptr for a storage that another allocator made.
CountedBlock* header_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get() == nullptr || data.get_deleter() != &release) return nullptr;
  return static_cast<CountedBlock*>(data.get()) - 1;
}

class GradientArrival final : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const torch::autograd::Variable& leaf) override {
    recount(leaf.grad(), ByteCategory::Gradients);
  }
};

void require_installed() {
  LETHE_CHECK(ConfigError,
              installed,
              "byte accounting: it must be installed before bytes are read or limited, got no "
              "installation; "
              "call install_byte_accounting() first in main");
}

// The memory of `n` counted bytes, given back where the limit refuses them.
CountedBlock* take_counted(size_t n) {
  counters().expect_room(static_cast<int64_t>(n));
  const size_t size = sizeof(CountedBlock) + n;
  void* const memory = take_memory(size);
  auto* const header =
      new (memory) CountedBlock{.size = static_cast<int64_t>(n), .category = current_category};
  try {
    counters().add(*header);
  } catch (...) {
    give_memory(memory, size);
    throw;
  }
  return header;
}

class CountingAllocator final : public c10::Allocator {
 public:
  // Context and data are the same pointer: ATen's raw allocations assert it.
  c10::DataPtr allocate(size_t n) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (n == 0) return {nullptr, nullptr, &release, cpu};
    auto* const header = take_counted(n);
    void* const data = header + 1;
    return {data, data, &release, cpu};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

}  // namespace

const char* name_of(ByteCategory category) {
  switch (category) {
    case ByteCategory::Parameters:
      return "parameters";
    case ByteCategory::Gradients:
      return "gradients";
    case ByteCategory::Optimizer:
      return "optimizer";
    case ByteCategory::Activations:
      return "activations";
    case ByteCategory::Temporaries:
      return "temporaries";
  }
  fail_internal(fmt::format("byte accounting: unknown category {}", static_cast<int>(category)));
}

void install_byte_accounting() {
  if (installed) return;
  // Never destroyed: storages of static tensors may be freed after it would be.
  static auto* const allocator = new CountingAllocator;
  constexpr uint8_t kPriority = 1;  // the default allocator has 0
  c10::SetAllocator(c10::DeviceType::CPU, allocator, kPriority);
  LETHE_CHECK(ConfigError,
              c10::GetAllocator(c10::DeviceType::CPU) == allocator,
              "byte accounting: the CPU allocator must have priority <= {}, got one of a higher "
              "priority; install byte accounting before or instead of the other allocator",
              kPriority);
  installed = true;
}

bool byte_accounting_installed() {
  return installed;
}

ByteReport bytes() {
  require_installed();
  return counters().report();
}

void reset_peak() {
  counters().reset_peak();
}

BlockCacheReport kept_blocks() {
  return block_cache().report();
}

void give_kept_blocks_back() {
  block_cache().clear();
}

void recount(const at::Tensor& tensor, ByteCategory category) {
  if (CountedBlock* const header = header_of(tensor)) counters().move(*header, category);
}

std::optional<ByteCategory> category_of(const at::Tensor& tensor) {
  const CountedBlock* const header = header_of(tensor);
  return header == nullptr ? std::nullopt : std::optional(header->category);
}

void recount_saved(const at::Tensor& tensor) {
  CountedBlock* const header = header_of(tensor);
  if (header != nullptr && header->category == ByteCategory::Temporaries)
    counters().move(*header, ByteCategory::Activations);
}

void count_gradients_of(const at::Tensor& leaf) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<GradientArrival>());
}

ByteLimit::ByteLimit(int64_t bytes) {
  require_installed();
  outer_ = counters().limit(bytes);
}

ByteLimit::~ByteLimit() {
  counters().limit(outer_);
}

ByteTag::ByteTag(ByteCategory category) : outer_(current_category) {
  current_category = category;
}

ByteTag::~ByteTag() {
  current_category = outer_;
}

bool set_watching(bool on) {
  return counters().set_watching(on);
}

LiveBlocks blocks_now() {
  return counters().blocks();
}

CountedBlock* nameless_block(const at::Tensor& tensor) {
  CountedBlock* const header = header_of(tensor);
  return header != nullptr && counters().is_nameless(*header) ? header : nullptr;
}

void set_shape(CountedBlock& block, uint32_t shape, uint32_t dtype) {
  counters().set_shape(block, shape, dtype);
}

}  // namespace lethe
