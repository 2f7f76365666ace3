#include "lethe/data/sampling.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Logits whose softmax is `shares`.
std::vector<double> logits_of(const std::vector<double>& shares) {
  std::vector<double> logits;
  for (const double share : shares) logits.push_back(std::log(share));
  return logits;
}

/// How often each token came in `draws` draws.
std::vector<int> counts(const std::vector<double>& logits,
                        const SamplingSettings& settings,
                        int draws) {
  Random random(7);
  std::vector<int> out(logits.size(), 0);
  for (int i = 0; i < draws; ++i) ++out[static_cast<size_t>(sample(logits, settings, random))];
  return out;
}

/// The tokens that can come at all.
std::vector<size_t> support(const std::vector<double>& logits, const SamplingSettings& settings) {
  const std::vector<int> seen = counts(logits, settings, 2000);
  std::vector<size_t> out;
  for (size_t i = 0; i < seen.size(); ++i)
    if (seen[i] > 0) out.push_back(i);
  return out;
}

using Tokens = std::vector<size_t>;

TEST(Sampling, TemperatureZeroTakesTheLikeliestAndOfEqualOnesTheLowest) {
  Random random(1);
  const SamplingSettings greedy{.temperature = 0, .top_p = 0.1, .top_k = 1};
  EXPECT_EQ(sample(std::vector<double>{1, 3, 3, -kInf}, greedy, random), 1);
  EXPECT_EQ(random.next(), Random(1).next());  // no number was taken
}

TEST(Sampling, WithoutLimitsTheTokenIsFoundByTheCumulativeSumInIndexOrder) {
  const std::vector<double> shares{0.1, 0.4, 0.2, 0.3};
  const std::vector<double> logits = logits_of(shares);
  Random random(99);
  Random same(99);
  for (int i = 0; i < 1000; ++i) {
    double total = 0;
    std::vector<double> mass;
    for (const double x : logits) mass.push_back(std::exp((x - logits[1]) / 0.7));
    for (const double m : mass) total += m;
    double left = same.uniform() * total;
    int64_t expected = 0;
    while ((left -= mass[static_cast<size_t>(expected)]) >= 0) ++expected;
    ASSERT_EQ(sample(logits, {.temperature = 0.7}, random), expected) << i;
  }
  EXPECT_EQ(random.next(), same.next());  // one number per token
}

TEST(Sampling, TopPKeepsTheSmallestLikeliestSetThatReachesIt) {
  const std::vector<double> logits{3, 1, 2, 0};  // shares 0.644, 0.087, 0.237, 0.032
  EXPECT_EQ(support(logits, {.top_p = 0.5}), (Tokens{0}));
  EXPECT_EQ(support(logits, {.top_p = 0.65}), (Tokens{0, 2}));
  EXPECT_EQ(support(logits, {.top_p = 0.9}), (Tokens{0, 1, 2}));
  EXPECT_EQ(support(logits, {.top_p = 0.99}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(support(logits, {.top_p = 1e-300}), (Tokens{0}));
}

TEST(Sampling, AShareThatIsReachedExactlyIsEnough) {
  const std::vector<double> equal(4, 0.5);
  EXPECT_EQ(support(equal, {.top_p = 0.5}), (Tokens{0, 1}));
  EXPECT_EQ(support(equal, {.top_p = 0.51}), (Tokens{0, 1, 2}));
}

TEST(Sampling, TopKKeepsTheLikeliestAndOfEqualOnesTheLowestIds) {
  EXPECT_EQ(support({0, 1, 1, 1}, {.top_k = 2}), (Tokens{1, 2}));
  EXPECT_EQ(support({0, 1, 1, 1}, {.top_k = 100}), (Tokens{0, 1, 2, 3}));
}

TEST(Sampling, TopPIsAShareOfWhatTopKLeft) {
  const std::vector<double> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(support(logits, {.top_p = 0.56}), (Tokens{0, 1}));
  EXPECT_EQ(support(logits, {.top_p = 0.56, .top_k = 2}), (Tokens{0}));  // 0.4 of 0.7
}

TEST(Sampling, ALowTemperatureNarrowsTheSetThatTopPKeeps) {
  const std::vector<double> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(support(logits, {.temperature = 0.1, .top_p = 0.9}), (Tokens{0}));
}

TEST(Sampling, FrequenciesAreTheProbabilitiesOfWhatIsKept) {
  const std::vector<double> shares{0.1, 0.4, 0.2, 0.3};
  constexpr int kDraws = 100'000;
  const std::vector<int> all = counts(logits_of(shares), {}, kDraws);
  const std::vector<int> kept = counts(logits_of(shares), {.top_p = 0.85}, kDraws);
  for (size_t i = 0; i < shares.size(); ++i) {
    const double deviation = 5 * std::sqrt(kDraws * shares[i] * (1 - shares[i]));
    EXPECT_NEAR(all[i], kDraws * shares[i], deviation) << i;
    const double share = i == 0 ? 0 : shares[i] / 0.9;
    EXPECT_NEAR(kept[i], kDraws * share, 5 * std::sqrt(kDraws * share * (1 - share))) << i;
  }
}

TEST(Sampling, ImpossibleTokensNeverCome) {
  EXPECT_EQ(support({-kInf, 0, -kInf, 0}, {}), (Tokens{1, 3}));
  EXPECT_EQ(support({-kInf, 0, -kInf, 0}, {.top_p = 0.999, .top_k = 4}), (Tokens{1, 3}));
}

TEST(Sampling, LogitsThatAreNoNumbersAreRefused) {
  Random random(1);
  for (const std::vector<double>& bad : {std::vector<double>{std::nan(""), 1},
                                         std::vector<double>{1, std::nan("")},
                                         std::vector<double>{1, kInf},
                                         std::vector<double>{-kInf, -kInf},
                                         std::vector<double>{}})
    EXPECT_THROW((void)sample(bad, {}, random), NumericError);
}

TEST(Sampling, SettingsOutOfRangeNameTheirFlag) {
  const auto refusal = [](const SamplingSettings& settings) -> std::string {
    try {
      check(settings);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_TRUE(refusal({.temperature = -1}).starts_with("--temperature"));
  EXPECT_TRUE(refusal({.temperature = std::nan("")}).starts_with("--temperature"));
  EXPECT_TRUE(refusal({.top_p = 0}).starts_with("--top-p"));
  EXPECT_TRUE(refusal({.top_p = 1.01}).starts_with("--top-p"));
  EXPECT_TRUE(refusal({.top_k = -1}).starts_with("--top-k"));
  EXPECT_EQ(refusal({}), "accepted");
}

}  // namespace
}  // namespace lethe
