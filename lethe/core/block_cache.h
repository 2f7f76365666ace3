#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

namespace lethe {

/// What a cache of blocks holds and has done, in bytes of whole blocks and in calls.
struct BlockCacheReport {
  int64_t live = 0;    // blocks handed out
  int64_t cached = 0;  // blocks kept for the next request
  int64_t most = 0;    // highest `live` so far
  int64_t reused = 0;  // requests that found a kept block
  int64_t mapped = 0;  // requests that mapped memory
};

/// Large blocks of memory that are kept when they are freed, because giving them back means that
/// the kernel clears and faults in every page again in the next step. Sizes come in classes, four
/// to a doubling; pages that a block has but its user never touches cost no memory. live + cached
/// stays within 9/8 of the highest live: beyond it, the blocks freed longest ago are given back.
/// Thread-safe. The accounting of bytes counts what was requested, above this cache.
class BlockCache final {
 public:
  /// Smaller requests are not for this cache.
  static constexpr size_t kLeastBytes = size_t{1} << 20;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache();

  /// At least `size` bytes (>= kLeastBytes), aligned to 2 MiB where they are as large, else to a
  /// page; contents are arbitrary. Throws std::bad_alloc.
  [[nodiscard]] void* take(size_t size);

  /// Takes a block back; `size` is that of take().
  void give(void* block, size_t size);

  /// Gives everything kept back to the system.
  void clear();

  [[nodiscard]] BlockCacheReport report() const;

 private:
  struct Kept {
    void* block;
    uint64_t when;
  };

  static constexpr size_t kNumClasses = 4 * 44;
  static size_t class_of(size_t size);
  static size_t bytes_of(size_t size_class);
  void* find(size_t size_class);
  bool unmap_oldest();

  mutable std::mutex mutex_;
  std::array<std::deque<Kept>, kNumClasses> kept_;  // by class, oldest first
  uint64_t clock_ = 0;
  BlockCacheReport report_;
};

}  // namespace lethe
