#include "lethe/kernels/cpu/sum_of_squares.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

TEST(SumOfSquares, IsExactForSmallIntegersAtEveryLength) {
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i + 1);
    EXPECT_EQ(sum_of_squares(x.data(), n), static_cast<double>(n * (n + 1) * (2 * n + 1) / 6)) << n;
  }
}

TEST(SumOfSquares, LargestFloatsDoNotOverflow) {
  const std::vector<float> x(20, std::numeric_limits<float>::max());
  EXPECT_GT(sum_of_squares(x.data(), 20), 2e78);
  EXPECT_LT(sum_of_squares(x.data(), 20), 3e78);
}

TEST(SumOfSquares, FirstNotFiniteFindsNanAndInfinity) {
  std::vector<double> x(30, 1.0);
  EXPECT_EQ(first_not_finite(x.data(), 30), -1);
  x[21] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(first_not_finite(x.data(), 30), 21);
  x[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(first_not_finite(x.data(), 30), 4);
}

}  // namespace
}  // namespace lethe::kernels
