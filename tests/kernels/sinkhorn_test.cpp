#include "lethe/kernels/cpu/sinkhorn.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;
constexpr float kEps = 1e-6F;

Floats normal(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = scale * distribution(random);
  return out;
}

Floats forward(const Floats& logits, int64_t n, int64_t iterations, int threads = 1) {
  Floats comb(logits.size(), NAN);
  Floats scratch(static_cast<size_t>(sinkhorn_scratch_floats(n, 1, threads)), NAN);
  sinkhorn_forward({.parallel = test::threads_of(threads),
                    .count = static_cast<int64_t>(logits.size()) / (n * n),
                    .n = n,
                    .iterations = iterations,
                    .eps = kEps,
                    .logits = logits.data(),
                    .comb = comb.data(),
                    .scratch = scratch.data()});
  return comb;
}

Floats backward(
    const Floats& logits, const Floats& d_comb, int64_t n, int64_t iterations, int threads = 1) {
  Floats d_logits(logits.size(), NAN);
  Floats scratch(static_cast<size_t>(sinkhorn_scratch_floats(n, iterations, threads)), NAN);
  sinkhorn_backward({.parallel = test::threads_of(threads),
                     .count = static_cast<int64_t>(logits.size()) / (n * n),
                     .n = n,
                     .iterations = iterations,
                     .eps = kEps,
                     .logits = logits.data(),
                     .d_comb = d_comb.data(),
                     .d_logits = d_logits.data(),
                     .scratch = scratch.data()});
  return d_logits;
}

std::vector<double> divided_by_sums(std::vector<double> m, size_t n, bool columns) {
  std::vector<double> out(m.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = kEps;
      for (size_t k = 0; k < n; ++k) sum += columns ? m[k * n + j] : m[i * n + k];
      out[i * n + j] = m[i * n + j] / sum;
    }
  return out;
}

// Model spec 3.1, in double.
std::vector<double> definition(const float* logits, size_t n, int64_t iterations) {
  std::vector<double> m(n * n);
  for (size_t i = 0; i < n; ++i) {
    double top = logits[i * n], sum = 0;
    for (size_t j = 0; j < n; ++j) top = std::max<double>(top, logits[i * n + j]);
    for (size_t j = 0; j < n; ++j) sum += m[i * n + j] = std::exp(logits[i * n + j] - top);
    for (size_t j = 0; j < n; ++j) m[i * n + j] = m[i * n + j] / sum + kEps;
  }
  m = divided_by_sums(m, n, true);
  for (int64_t i = 1; i < iterations; ++i)
    m = divided_by_sums(divided_by_sums(m, n, false), n, true);
  return m;
}

TEST(SinkhornKernel, IsTheDefinitionForEveryNumberOfStreams) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (int64_t n = 1; n <= 9; ++n)
      for (const int64_t iterations : {1, 2, 20})
        for (const float scale : {1.0F, 8.0F, 200.0F}) {
          const auto size = static_cast<size_t>(n * n);
          const Floats logits = normal(37 * n * n, 1, scale);
          const Floats got = forward(logits, n, iterations);
          for (size_t m = 0; m < 37; ++m) {
            const std::vector<double> want =
                definition(logits.data() + m * size, static_cast<size_t>(n), iterations);
            for (size_t k = 0; k < size; ++k)
              ASSERT_NEAR(got[m * size + k], want[k], 3e-6) << n << ' ' << iterations << ' ' << m;
          }
        }
  });
}

// Central differences of the definition.
TEST(SinkhornKernel, GradientIsThatOfTheDefinition) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const int64_t n : {1, 2, 3, 4, 5, 8})
      for (const int64_t iterations : {1, 20}) {
        const auto size = static_cast<size_t>(n * n);
        const Floats logits = normal(3 * n * n, 1), d = normal(3 * n * n, 2);
        const Floats got = backward(logits, d, n, iterations);
        for (size_t k = 0; k < logits.size(); ++k) {
          const size_t first = k / size * size;
          Floats moved(logits.begin() + static_cast<int64_t>(first),
                       logits.begin() + static_cast<int64_t>(first + size));
          double values[2];
          const float step = 1.0F / 256, at = moved[k - first];
          for (const int side : {0, 1}) {
            moved[k - first] = at + (side == 0 ? -step : step);
            const std::vector<double> m =
                definition(moved.data(), static_cast<size_t>(n), iterations);
            values[side] = 0;
            for (size_t i = 0; i < size; ++i) values[side] += m[i] * d[first + i];
          }
          const double width = static_cast<double>(at + step) - static_cast<double>(at - step);
          ASSERT_NEAR(got[k], (values[1] - values[0]) / width, 1e-4) << n << ' ' << iterations;
        }
      }
  });
}

TEST(SinkhornKernel, BitsDoNotDependOnTheNumberOfThreadsOrOnNeighbours) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Floats logits = normal(5003 * 16, 1), d = normal(5003 * 16, 2);
    const Floats one = forward(logits, 4, 20), one_back = backward(logits, d, 4, 20);
    for (const int threads : {2, 3}) {
      EXPECT_EQ(one, forward(logits, 4, 20, threads));
      EXPECT_EQ(one_back, backward(logits, d, 4, 20, threads));
    }
    const Floats last(logits.end() - 16, logits.end());
    EXPECT_EQ(forward(last, 4, 20), Floats(one.end() - 16, one.end()));
  });
}

TEST(SinkhornKernel, NotFiniteMatricesStayAlone) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Floats logits = normal(20 * 9, 1);
    logits[3 * 9 + 4] = NAN;
    logits[7 * 9] = INFINITY;
    logits[11 * 9 + 8] = -INFINITY;  // a weight of zero: no trouble
    const Floats comb = forward(logits, 3, 20);
    for (size_t k = 0; k < comb.size(); ++k)
      ASSERT_TRUE(k / 9 == 3 || k / 9 == 7 || std::isfinite(comb[k])) << k / 9;
    EXPECT_TRUE(std::isnan(comb[3 * 9 + 4]));
    EXPECT_TRUE(std::isnan(comb[7 * 9]));
  });
}

}  // namespace
}  // namespace lethe::kernels
