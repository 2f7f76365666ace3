#include "lethe/core/block_cache.h"

#include <algorithm>
#include <bit>
#include <new>

#include <sys/mman.h>

namespace lethe {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

void* map(size_t size) {
  const size_t align = size >= kHugePage ? kHugePage : 0;
  void* const raw =
      ::mmap(nullptr, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  if (align == 0) return raw;
  auto* const begin = static_cast<std::byte*>(raw);
  const size_t before = (align - reinterpret_cast<uintptr_t>(raw) % align) % align;
  if (before > 0) ::munmap(begin, before);
  if (before < align) ::munmap(begin + before + size, align - before);
  // Fewer faults, and kernels that jump between rows miss the page tables less. Advice only.
  ::madvise(begin + before, size, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

// Class 4d + q holds blocks of (4 + q) / 4 * 2^d times the least size, and a page more: whoever
// puts a header before a power of two would be in the next class otherwise, and touch one more huge
// page.
size_t BlockCache::class_of(size_t size) {
  const size_t without_page = std::max(kLeastBytes, size - kPage);
  const auto doublings = static_cast<size_t>(std::bit_width(without_page / kLeastBytes) - 1);
  for (size_t quarter = 0; quarter < 4; ++quarter)
    if (bytes_of(4 * doublings + quarter) >= size) return 4 * doublings + quarter;
  return 4 * (doublings + 1);
}

size_t BlockCache::bytes_of(size_t size_class) {
  return (4 + size_class % 4) * ((kLeastBytes / 4) << (size_class / 4)) + kPage;
}

BlockCache::~BlockCache() {
  clear();
}

void* BlockCache::find(size_t size_class) {
  auto& kept = kept_[size_class];
  if (kept.empty()) return nullptr;
  void* const block = kept.back().block;
  kept.pop_back();
  report_.cached -= static_cast<int64_t>(bytes_of(size_class));
  return block;
}

bool BlockCache::unmap_oldest() {
  size_t oldest = kNumClasses;
  for (size_t c = 0; c < kNumClasses; ++c)
    if (!kept_[c].empty() &&
        (oldest == kNumClasses || kept_[c].front().when < kept_[oldest].front().when))
      oldest = c;
  if (oldest == kNumClasses) return false;
  ::munmap(kept_[oldest].front().block, bytes_of(oldest));
  kept_[oldest].pop_front();
  report_.cached -= static_cast<int64_t>(bytes_of(oldest));
  return true;
}

void* BlockCache::take(size_t size) {
  const size_t size_class = class_of(size);
  const auto bytes = static_cast<int64_t>(bytes_of(size_class));
  const std::lock_guard<std::mutex> lock(mutex_);
  void* block = find(size_class);
  if (block != nullptr) {
    ++report_.reused;
  } else {
    const int64_t most = std::max(report_.most, report_.live + bytes);
    while (report_.live + report_.cached + bytes > most + most / 8 && unmap_oldest()) {
    }
    block = map(static_cast<size_t>(bytes));
    ++report_.mapped;
  }
  report_.live += bytes;
  report_.most = std::max(report_.most, report_.live);
  return block;
}

void BlockCache::give(void* block, size_t size) {
  const size_t size_class = class_of(size);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto bytes = static_cast<int64_t>(bytes_of(size_class));
  report_.live -= bytes;
  report_.cached += bytes;
  kept_[size_class].push_back({block, ++clock_});
}

void BlockCache::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (unmap_oldest()) {
  }
}

BlockCacheReport BlockCache::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return report_;
}

}  // namespace lethe
