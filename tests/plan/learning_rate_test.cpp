#include "lethe/plan/learning_rate.h"

#include <string>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr LearningRateSchedule kSchedule{
    .peak = 1e-3, .minimum = 1e-4, .warmup_steps = 10, .total_steps = 110};

TEST(LearningRate, WarmUpRisesLinearlyToThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 0), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 4), 5e-4);
  EXPECT_EQ(learning_rate(kSchedule, 9), 1e-3);
}

TEST(LearningRate, CosineFallsFromThePeakToTheMinimum) {
  EXPECT_DOUBLE_EQ(learning_rate(kSchedule, 59), 5.5e-4);  // half of the way: the mean
  EXPECT_EQ(learning_rate(kSchedule, 109), 1e-4);
  for (int64_t step = 10; step < 110; ++step)
    EXPECT_LT(learning_rate(kSchedule, step), learning_rate(kSchedule, step - 1)) << step;
}

TEST(LearningRate, StaysAtTheMinimumBeyondTheLastStep) {
  EXPECT_EQ(learning_rate(kSchedule, 110), 1e-4);
  EXPECT_EQ(learning_rate(kSchedule, 1000000), 1e-4);
}

TEST(LearningRate, WithoutWarmUpTheFirstStepRunsAtThePeak) {
  const LearningRateSchedule s{.peak = 1, .minimum = 0, .warmup_steps = 0, .total_steps = 3};
  EXPECT_EQ(learning_rate(s, 0), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.5);
  EXPECT_EQ(learning_rate(s, 2), 0);
}

TEST(LearningRate, ASingleStepRunsAtThePeakWithAndWithoutWarmUp) {
  for (const int64_t warmup : {0, 1}) {
    const LearningRateSchedule s{.peak = 1, .minimum = 0, .warmup_steps = warmup, .total_steps = 1};
    EXPECT_EQ(learning_rate(s, 0), 1);
    EXPECT_EQ(learning_rate(s, 1), 0);
  }
}

TEST(LearningRate, WarmUpMayFillTheWholeRun) {
  const LearningRateSchedule s{.peak = 4, .minimum = 1, .warmup_steps = 4, .total_steps = 4};
  check(s);
  for (int64_t step = 0; step < 4; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(s, step), static_cast<double>(step + 1));
}

TEST(LearningRate, CheckNamesEveryFieldOutsideItsRange) {
  check(kSchedule);
  try {
    check({.peak = -1, .minimum = 2, .warmup_steps = 7, .total_steps = 0});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part : {"peak must be",
                             "got -1",
                             "minimum must be",
                             "got 2",
                             "steps must be",
                             "got 0",
                             "warm-up must be",
                             "got 7"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace lethe
