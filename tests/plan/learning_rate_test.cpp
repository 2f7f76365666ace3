#include "lethe/plan/learning_rate.h"

#include <cmath>
#include <numbers>
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

LearningRateSchedule with_style(DecayStyle style) {
  LearningRateSchedule s = kSchedule;
  s.style = style;
  return s;
}

LearningRateSchedule wsd(WsdDecayStyle style, int64_t decay) {
  LearningRateSchedule s = with_style(DecayStyle::Wsd);
  s.wsd_style = style;
  s.wsd_decay_steps = decay;
  return s;
}

// The bits of runs that were made before there was a choice of styles.
TEST(LearningRate, CosineIsTheFormulaToTheBit) {
  for (int64_t step = 10; step < 110; ++step) {
    const double p = static_cast<double>(step - 9) / 100;
    EXPECT_EQ(learning_rate(kSchedule, step),
              1e-4 + (1e-3 - 1e-4) * (1 + std::cos(std::numbers::pi * p)) / 2);
  }
}

TEST(LearningRate, EveryStyleWarmsUpAlike) {
  for (const auto& s : {with_style(DecayStyle::Constant),
                        with_style(DecayStyle::Linear),
                        wsd(WsdDecayStyle::Linear, 20)})
    for (int64_t step = 0; step < 10; ++step)
      EXPECT_EQ(learning_rate(s, step), learning_rate(kSchedule, step));
}

TEST(LearningRate, ConstantStaysAtThePeakForEver) {
  const LearningRateSchedule s = with_style(DecayStyle::Constant);
  for (const int64_t step : {9, 10, 60, 109, 110, 100000}) EXPECT_EQ(learning_rate(s, step), 1e-3);
  EXPECT_FALSE(first_decay_step(s).has_value());
}

TEST(LearningRate, LinearFallsByTheSameAmountEachStep) {
  const LearningRateSchedule s = with_style(DecayStyle::Linear);
  for (int64_t step = 10; step < 110; ++step)
    EXPECT_NEAR(learning_rate(s, step), 1e-3 - 9e-4 * static_cast<double>(step - 9) / 100, 1e-18);
  EXPECT_EQ(learning_rate(s, 109), 1e-4);
  EXPECT_EQ(learning_rate(s, 200), 1e-4);
}

TEST(LearningRate, WsdHoldsThePeakAndFallsOverItsLastSteps) {
  const auto left = [](WsdDecayStyle style, double p) {
    return style == WsdDecayStyle::Linear   ? 1 - p
           : style == WsdDecayStyle::Cosine ? (1 + std::cos(std::numbers::pi * p)) / 2
                                            : 2 * std::exp2(-p) - 1;
  };
  for (const auto style :
       {WsdDecayStyle::Linear, WsdDecayStyle::Cosine, WsdDecayStyle::Exponential}) {
    const LearningRateSchedule s = wsd(style, 20);
    check(s);
    for (int64_t step = 9; step < 90; ++step) EXPECT_EQ(learning_rate(s, step), 1e-3) << step;
    for (int64_t step = 90; step < 110; ++step)
      EXPECT_NEAR(learning_rate(s, step),
                  1e-4 + 9e-4 * left(style, static_cast<double>(step - 89) / 20),
                  1e-17)
          << step;
    EXPECT_EQ(learning_rate(s, 109), 1e-4);
    EXPECT_EQ(learning_rate(s, 500), 1e-4);
  }
}

TEST(LearningRate, TheDecayMayEndBeforeOrAfterTheRun) {
  LearningRateSchedule s = kSchedule;
  s.decay_steps = 60;
  EXPECT_EQ(learning_rate(s, 59), 1e-4);
  EXPECT_EQ(learning_rate(s, 80), 1e-4);
  s.decay_steps = 210;  // half of the way at step 109
  EXPECT_DOUBLE_EQ(learning_rate(s, 109), 5.5e-4);
}

TEST(LearningRate, TheFirstDecayStepIsTheFirstBelowThePeak) {
  for (LearningRateSchedule s : {kSchedule,
                                 with_style(DecayStyle::Linear),
                                 wsd(WsdDecayStyle::Cosine, 20),
                                 wsd(WsdDecayStyle::Exponential, 1),
                                 wsd(WsdDecayStyle::Linear, 100)})
    for (const int64_t warmup : {0, 1, 10}) {
      s.warmup_steps = warmup;
      check(s);
      const int64_t first = first_decay_step(s).value();
      EXPECT_LT(learning_rate(s, first), s.peak);
      EXPECT_EQ(learning_rate(s, first - 1), s.peak);
    }
}

TEST(LearningRate, WsdSettingsAreCheckedAgainstTheRun) {
  check(wsd(WsdDecayStyle::Linear, 100));
  for (const int64_t decay : {0, 101, -3})
    EXPECT_THROW(check(wsd(WsdDecayStyle::Linear, decay)), ConfigError) << decay;
  LearningRateSchedule s = kSchedule;
  s.wsd_decay_steps = 101;  // not looked at by the other styles
  check(s);
  s.decay_steps = 9;
  EXPECT_THROW(check(s), ConfigError);  // shorter than the warm-up
  s.decay_steps = -1;
  EXPECT_THROW(check(s), ConfigError);
}

}  // namespace
}  // namespace lethe
