#include "lethe/core/block_cache.h"

#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lethe {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockCache, AFreedBlockServesTheNextRequestOfItsClass) {
  BlockCache cache;
  void* const first = cache.take(5 * kMiB);
  cache.give(first, 5 * kMiB);
  void* const second = cache.take(5 * kMiB - 100);
  EXPECT_EQ(first, second);
  EXPECT_EQ(cache.report().reused, 1);
  EXPECT_EQ(cache.report().mapped, 1);
  cache.give(second, 5 * kMiB - 100);
}

TEST(BlockCache, EverySizeFitsItsBlock) {
  BlockCache cache;
  for (size_t size = kMiB; size < 40 * kMiB; size += 777'777) {
    void* const block = cache.take(size);
    std::memset(block, 1, size);
    cache.give(block, size);
  }
  EXPECT_EQ(cache.report().live, 0);
}

TEST(BlockCache, LargeBlocksBeginOnAHugePage) {
  BlockCache cache;
  for (const size_t size : {2 * kMiB, 3 * kMiB, 50 * kMiB}) {
    void* const block = cache.take(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (2 * kMiB), 0U);
    cache.give(block, size);
  }
}

// What is kept must not make a process larger than its own peak by more than an eighth.
TEST(BlockCache, HoldsAtMostNineEighthsOfTheHighestUse) {
  BlockCache cache;
  for (size_t round = 0; round < 20; ++round) {
    const size_t size = (4 + 3 * round) * kMiB;
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(cache.take(size));
    const BlockCacheReport now = cache.report();
    EXPECT_LE(now.live + now.cached, now.most + now.most / 8);
    for (void* const block : blocks) cache.give(block, size);
  }
  cache.clear();
  EXPECT_EQ(cache.report().cached, 0);
}

TEST(BlockCache, ARepeatedPatternMapsNothingAfterItsFirstRounds) {
  BlockCache cache;
  const auto step = [&cache] {
    std::vector<std::pair<void*, size_t>> live;
    for (const size_t size : {8, 3, 12, 3, 5, 40})
      live.emplace_back(cache.take(size * kMiB), size * kMiB);
    for (const auto& [block, size] : live) cache.give(block, size);
  };
  step();
  const int64_t mapped = cache.report().mapped;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(cache.report().mapped, mapped);
}

TEST(BlockCache, ThreadsMayTakeAndGiveAtOnce) {
  BlockCache cache;
  const auto work = [&cache](size_t seed) {
    for (size_t i = 0; i < 200; ++i) {
      const size_t size = (1 + (seed + i) % 5) * kMiB;
      auto* const block = static_cast<unsigned char*>(cache.take(size));
      block[0] = block[size - 1] = static_cast<unsigned char>(seed);
      EXPECT_EQ(block[0], seed);
      cache.give(block, size);
    }
  };
  std::vector<std::thread> threads;
  for (size_t seed = 0; seed < 3; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.report().live, 0);
}

}  // namespace
}  // namespace lethe
