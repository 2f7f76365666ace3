#include "lethe/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace lethe {
namespace {

TEST(Random, MatchesTheSplitmix64ReferenceSequence) {
  Random random(1234567);
  const uint64_t expected[] = {6457827717110365317u,
                               3203168211198807973u,
                               9817491932198370423u,
                               4593380528125082431u,
                               16408922859458223821u};
  for (const uint64_t word : expected) EXPECT_EQ(random.next(), word);
}

TEST(Random, UniformBelowReachesEveryValueEquallyOften) {
  Random random(3);
  constexpr uint64_t kBound = 7;
  constexpr int kDraws = 70000;
  std::vector<int> count(kBound);
  for (int i = 0; i < kDraws; ++i) ++count[random.uniform_below(kBound)];
  for (const int n : count) EXPECT_NEAR(n, kDraws / 7, 500);  // 5 standard deviations are 463
}

// Without rejection the lowest third would come up half of the time.
TEST(Random, UniformBelowHasNoBiasNearTheWordSize) {
  Random random(5);
  constexpr uint64_t kThird = uint64_t{1} << 62;
  constexpr int kDraws = 30000;
  std::vector<int> count(3);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = random.uniform_below(3 * kThird);
    ASSERT_LT(value, 3 * kThird);
    ++count[value / kThird];
  }
  for (const int n : count) EXPECT_NEAR(n, kDraws / 3, 410);  // 5 standard deviations
  EXPECT_EQ(random.uniform_below(1), 0u);
}

TEST(Random, UniformLiesInTheUnitIntervalWithMeanOneHalf) {
  Random random(7);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1) << u;
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Random, ShuffleIsAPermutationThatDependsOnTheSeed) {
  std::vector<int> first(100), second(100), other(100);
  for (auto* v : {&first, &second, &other}) std::iota(v->begin(), v->end(), 0);
  Random(1).shuffle(std::span(first));
  Random(1).shuffle(std::span(second));
  Random(2).shuffle(std::span(other));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_EQ(std::set<int>(first.begin(), first.end()).size(), 100u);
}

TEST(Random, EveryOrderOfThreeItemsIsEquallyLikely) {
  Random random(11);
  std::vector<int> count(27);
  for (int i = 0; i < 60000; ++i) {
    std::vector<int> items{0, 1, 2};
    random.shuffle(std::span(items));
    ++count[static_cast<size_t>(9 * items[0] + 3 * items[1] + items[2])];
  }
  int orders = 0;
  for (const int n : count) {
    if (n == 0) continue;
    ++orders;
    EXPECT_NEAR(n, 10000, 460);  // 5 standard deviations
  }
  EXPECT_EQ(orders, 6);
}

TEST(FillNormal, HasMeanZeroTheGivenDeviationAndNormalTails) {
  std::vector<double> x(200000);
  fill_normal(std::span(x), 0.5, stream_key(1, "weight"));
  double sum = 0, squares = 0;
  int64_t beyond_two = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
    beyond_two += std::abs(v) > 1.0 ? 1 : 0;
  }
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.5, 0.005);
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 0.0025);
}

TEST(FillNormal, ElementsDoNotDependOnTheLengthOfTheFill) {
  std::vector<float> all(1001), front(38), odd(37);
  for (auto* v : {&all, &front, &odd}) fill_normal(std::span(*v), 1.0, 99);
  EXPECT_EQ(std::memcmp(all.data(), front.data(), 38 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(all.data(), odd.data(), 37 * sizeof(float)), 0);
}

TEST(FillNormal, FloatIsTheRoundedDouble) {
  std::vector<float> single(64);
  std::vector<double> wide(64);
  fill_normal(std::span(single), 0.02, 5);
  fill_normal(std::span(wide), 0.02, 5);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(single[i], static_cast<float>(wide[i]));
}

TEST(StreamKey, EverySeedAndNameHasItsOwnKey) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (const char* name : {"", "a", "b", "ab", "ba", "aa", "layers.1", "layers.10"})
      keys.insert(stream_key(seed, name));
  EXPECT_EQ(keys.size(), 800u);
}

}  // namespace
}  // namespace lethe
