#include "lethe/kernels/cpu/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

std::vector<float> normal(int64_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> distribution;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = distribution(random);
  return out;
}

std::vector<float> run(const std::vector<float>& x, int64_t width, int threads) {
  std::vector<float> y(x.size());
  hadamard({test::threads_of(threads), std::ssize(x) / width, width, x.data(), y.data()});
  return y;
}

// Element (i, j) of the Sylvester matrix is -1 to the number of ones that i and j share.
TEST(HadamardKernel, IsTheSylvesterMatrixAtEveryWidth) {
  test::for_each_isa([](Isa isa) {
    for (int64_t width = 1; width <= 512; width *= 2) {
      SCOPED_TRACE(testing::Message() << isa_name(isa) << " width " << width);
      const std::vector<float> x = normal(3 * width), y = run(x, width, 1);
      for (int64_t at = 0; at < 3 * width; ++at) {
        const int64_t row = at / width * width, i = at % width;
        double want = 0;
        for (int64_t j = 0; j < width; ++j) {
          const int shared = std::popcount(static_cast<uint64_t>(i & j));
          want += (shared % 2 == 0 ? 1 : -1) * x[static_cast<size_t>(row + j)];
        }
        want /= std::sqrt(static_cast<double>(width));
        ASSERT_NEAR(y[static_cast<size_t>(at)], want, 3e-6) << at;
      }
    }
  });
}

TEST(HadamardKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const std::vector<float> x = normal(3001 * 64), one = run(x, 64, 1);
    for (const int threads : {2, 3})
      EXPECT_EQ(std::memcmp(one.data(), run(x, 64, threads).data(), one.size() * sizeof(float)), 0);
  });
}

TEST(HadamardKernel, MayWorkInPlace) {
  std::vector<float> x = normal(5 * 32);
  const std::vector<float> want = run(x, 32, 1);
  hadamard({{}, 5, 32, x.data(), x.data()});
  EXPECT_EQ(x, want);
}

}  // namespace
}  // namespace lethe::kernels
