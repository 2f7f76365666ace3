#include "lethe/kernels/cpu/rms_norm.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

std::vector<float> normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> out(count);
  for (float& x : out) x = distribution(random);
  return out;
}

struct Gradients {
  std::vector<float> y, d_x, d_weight;
};

Gradients run(int64_t rows, int64_t width, int threads) {
  const auto size = static_cast<size_t>(rows * width), columns = static_cast<size_t>(width);
  const std::vector<float> x = normal(size, 1), weight = normal(columns, 2), d_y = normal(size, 3);
  Gradients out{std::vector<float>(size), std::vector<float>(size), std::vector<float>(columns)};
  std::vector<float> partials(static_cast<size_t>(kRmsNormPartials) * columns);
  const Parallel parallel = test::threads_of(threads);
  rms_norm_forward({parallel, rows, width, 1e-6F, x.data(), weight.data(), out.y.data()});
  rms_norm_backward({parallel,
                     rows,
                     width,
                     1e-6F,
                     x.data(),
                     weight.data(),
                     d_y.data(),
                     out.d_x.data(),
                     out.d_weight.data(),
                     partials.data()});
  return out;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(RmsNormKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Gradients one = run(131, 37, 1);
    for (const int threads : {2, 3}) {
      const Gradients more = run(131, 37, threads);
      expect_same_bits(one.y, more.y);
      expect_same_bits(one.d_x, more.d_x);
      expect_same_bits(one.d_weight, more.d_weight);
    }
  });
}

TEST(RmsNormKernel, EveryWidthIsNormalised) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (int64_t width = 1; width <= 40; ++width) {
      const auto columns = static_cast<size_t>(width);
      const std::vector<float> x = normal(3 * columns, 5);
      std::vector<float> y(x.size());
      rms_norm_forward({{}, 3, width, 0.0F, x.data(), nullptr, y.data()});
      for (size_t row = 0; row < 3; ++row) {
        double squares = 0;
        for (size_t i = 0; i < columns; ++i) squares += std::pow(y[row * columns + i], 2);
        EXPECT_NEAR(squares / static_cast<double>(width), 1, 1e-6) << width;
      }
    }
  });
}

TEST(RmsNormKernel, NotFiniteValuesStayInTheirRow) {
  const std::vector<float> x{NAN, 1, 2, 3, 4, 5, INFINITY, 1, 2};
  std::vector<float> y(x.size());
  rms_norm_forward({{}, 3, 3, 1e-6F, x.data(), nullptr, y.data()});
  EXPECT_TRUE(std::isnan(y[0]));
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isfinite(y[i]));
}

}  // namespace
}  // namespace lethe::kernels
