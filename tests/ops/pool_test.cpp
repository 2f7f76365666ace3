#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "lethe/ops/fused.h"

namespace lethe::ops {
namespace {

// Two tasks that wait for each other: a pool that has one thread never gets both.
TEST(AtenPool, RunsItsTasksAtTheSameTime) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::atomic<int> arrived{0}, met{0}, threads{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  aten_pool()(2, [&](int64_t, int thread) {
    threads |= 1 << thread;
    ++arrived;
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (arrived == 2) ++met;
  });
  at::set_num_threads(before);
  EXPECT_EQ(met, 2);
  EXPECT_EQ(threads, 3);
}

}  // namespace
}  // namespace lethe::ops
