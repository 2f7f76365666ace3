#include "lethe/kernels/cpu/cross_entropy.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

constexpr int64_t kIgnored = -100;

struct Results {
  std::vector<float> token_loss, lse, gradient;
};

Results run(const std::vector<float>& logits,
            const std::vector<int64_t>& labels,
            int threads = 1,
            float d_loss = 0.5F) {
  const auto rows = static_cast<int64_t>(labels.size()),
             vocab = static_cast<int64_t>(logits.size()) / rows;
  Results out{std::vector<float>(labels.size()), std::vector<float>(labels.size()), logits};
  const Parallel parallel = test::threads_of(threads);
  cross_entropy_forward({parallel,
                         rows,
                         vocab,
                         kIgnored,
                         logits.data(),
                         labels.data(),
                         out.token_loss.data(),
                         out.lse.data()});
  cross_entropy_backward({parallel,
                          rows,
                          vocab,
                          kIgnored,
                          d_loss,
                          labels.data(),
                          out.lse.data(),
                          out.gradient.data()});
  return out;
}

std::vector<float> normal(size_t count, float scale = 3) {
  std::mt19937 random(7);
  std::normal_distribution<float> distribution;
  std::vector<float> out(count);
  for (float& x : out) x = scale * distribution(random);
  return out;
}

TEST(CrossEntropyKernel, EqualsTheDefinitionForEveryVocabulary) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (size_t vocab : {1, 2, 5, 8, 15, 16, 17, 31, 64, 65, 130, 1000}) {
      const std::vector<float> logits = normal(3 * vocab);
      const std::vector<int64_t> labels{static_cast<int64_t>(vocab) - 1, kIgnored, 0};
      const Results got = run(logits, labels);
      for (size_t row = 0; row < 3; ++row) {
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{logits[row * vocab + v]});
        const double lse = std::log(sum);
        EXPECT_NEAR(got.lse[row], lse, 1e-6 * (1 + std::abs(lse))) << vocab;
        const bool counted = labels[row] != kIgnored;
        const size_t label = counted ? static_cast<size_t>(labels[row]) : vocab;
        EXPECT_NEAR(got.token_loss[row],
                    counted ? lse - logits[row * vocab + label] : 0,
                    1e-6 * (1 + std::abs(lse)));
        for (size_t v = 0; v < vocab; ++v) {
          const double p = std::exp(logits[row * vocab + v] - lse) - (v == label ? 1 : 0);
          EXPECT_NEAR(got.gradient[row * vocab + v], counted ? 0.5 * p : 0, 1e-6) << vocab;
        }
      }
    }
  });
}

TEST(CrossEntropyKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const size_t rows = 41, vocab = 1003;
    const std::vector<float> logits = normal(rows * vocab);
    std::vector<int64_t> labels(rows);
    for (size_t r = 0; r < rows; ++r) labels[r] = r % 5 == 0 ? kIgnored : static_cast<int64_t>(r);
    const Results one = run(logits, labels);
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    for (const int threads : {2, 3}) {
      const Results more = run(logits, labels, threads);
      EXPECT_TRUE(same(one.token_loss, more.token_loss) && same(one.lse, more.lse) &&
                  same(one.gradient, more.gradient));
    }
  });
}

TEST(CrossEntropyKernel, HugeLogitsCancelExactly) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Results got = run({1e4F, -1e4F, 9e3F, 1e30F, -1e30F, 3e38F}, {1, 2});
    EXPECT_EQ(got.token_loss[0], 2e4F);
    EXPECT_EQ(got.token_loss[1], 0);
    EXPECT_EQ(got.gradient, (std::vector<float>{0.5F, -0.5F, 0, 0, 0, 0}));
  });
}

TEST(CrossEntropyKernel, NotFiniteRowsStayAloneAndUncountedOnesAreZero) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    std::vector<float> logits = normal(5 * 19);
    logits[3] = NAN;
    logits[19 + 18] = INFINITY;
    logits[2 * 19] = NAN;
    logits[4 * 19 + 5] = -INFINITY;
    const Results got = run(logits, {1, 2, kIgnored, 4, 6});
    EXPECT_TRUE(std::isnan(got.token_loss[0]) && std::isnan(got.token_loss[1]));
    EXPECT_EQ(got.token_loss[2], 0);
    EXPECT_TRUE(std::isfinite(got.token_loss[3]) && std::isfinite(got.token_loss[4]));
    for (size_t i = 2 * 19; i < 3 * 19; ++i) EXPECT_EQ(got.gradient[i], 0);
    for (size_t i = 3 * 19; i < 5 * 19; ++i) EXPECT_TRUE(std::isfinite(got.gradient[i]));
    EXPECT_EQ(got.gradient[4 * 19 + 5], 0);
  });
}

}  // namespace
}  // namespace lethe::kernels
