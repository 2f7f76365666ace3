#include "lethe/core/byte_accounting.h"

#include <atomic>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// Atomics order nothing but themselves here: the figures are read between steps, not used for
// decisions.
constexpr auto kRelaxed = std::memory_order_relaxed;

class Counter {
 public:
  void add(int64_t size) {
    const int64_t live = live_.fetch_add(size, kRelaxed) + size;
    int64_t peak = peak_.load(kRelaxed);
    while (live > peak && !peak_.compare_exchange_weak(peak, live, kRelaxed)) {
    }
  }

  void subtract(int64_t size) { live_.fetch_sub(size, kRelaxed); }

  void reset_peak() { peak_.store(live_.load(kRelaxed), kRelaxed); }

  [[nodiscard]] int64_t live() const { return live_.load(kRelaxed); }

  [[nodiscard]] int64_t peak() const { return peak_.load(kRelaxed); }

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

Counter total;
std::array<Counter, kNumByteCategories> categories;
std::atomic<bool> installed{false};
thread_local ByteCategory current_category = ByteCategory::Other;

// Stands before every storage. A whole alignment unit, so that the data behind it stays aligned.
struct alignas(c10::gAlignment) Header {
  int64_t size;
  ByteCategory category;
};

static_assert(sizeof(Header) == c10::gAlignment);

void release(void* data) {
  if (data == nullptr) return;
  Header* const header = static_cast<Header*>(data) - 1;
  categories[static_cast<size_t>(header->category)].subtract(header->size);
  total.subtract(header->size);
  c10::GetDefaultCPUAllocator()->raw_deallocate(header);
}

class CountingAllocator final : public c10::Allocator {
 public:
  // Context and data are the same pointer: ATen's raw allocations assert it.
  c10::DataPtr allocate(size_t n) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (n == 0) return {nullptr, nullptr, &release, cpu};
    auto* const header =
        static_cast<Header*>(c10::GetDefaultCPUAllocator()->raw_allocate(sizeof(Header) + n));
    *header = {static_cast<int64_t>(n), current_category};
    total.add(header->size);
    categories[static_cast<size_t>(header->category)].add(header->size);
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
    case ByteCategory::Other:
      return "other";
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
  LETHE_CHECK(ConfigError,
              installed,
              "byte accounting: it must be installed before bytes are read, got no installation; "
              "call install_byte_accounting() first in main");
  ByteReport report{.live = total.live(), .peak = total.peak()};
  for (size_t c = 0; c < kNumByteCategories; ++c) {
    report.category_live[c] = categories[c].live();
    report.category_peak[c] = categories[c].peak();
  }
  return report;
}

void reset_peak() {
  total.reset_peak();
  for (Counter& category : categories) category.reset_peak();
}

ByteTag::ByteTag(ByteCategory category) : outer_(current_category) {
  current_category = category;
}

ByteTag::~ByteTag() {
  current_category = outer_;
}

}  // namespace lethe
