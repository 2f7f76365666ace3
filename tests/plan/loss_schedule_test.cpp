#include "lethe/plan/loss_schedule.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/plan/learning_rate.h"

namespace lethe {
namespace {

TEST(LossSchedule, TheMtpWeightChangesWithTheFirstDecayStep) {
  const LossSchedule s{.first_decay_step = 40};
  check(s);
  EXPECT_EQ(mtp_weight(s, 0), 0.3);
  EXPECT_EQ(mtp_weight(s, 39), 0.3);
  EXPECT_EQ(mtp_weight(s, 40), 0.1);
  EXPECT_EQ(mtp_weight(s, 100000), 0.1);
}

TEST(LossSchedule, WithoutADecayTheWeightStays) {
  const LossSchedule s{.mtp_weight = 0.2};
  EXPECT_EQ(mtp_weight(s, 100000), 0.2);
}

TEST(LossSchedule, FollowsTheLearningRateOfWsd) {
  const LearningRateSchedule rate{.peak = 1,
                                  .warmup_steps = 5,
                                  .total_steps = 50,
                                  .style = DecayStyle::Wsd,
                                  .wsd_decay_steps = 10};
  const LossSchedule s{.first_decay_step = first_decay_step(rate)};
  for (int64_t step = 5; step < 50; ++step)
    EXPECT_EQ(mtp_weight(s, step), learning_rate(rate, step) < 1 ? 0.1 : 0.3) << step;
}

TEST(LossSchedule, CheckNamesEveryFieldOutsideItsRange) {
  try {
    check(LossSchedule{.mtp_weight = -1, .mtp_weight_decayed = NAN, .first_decay_step = -2});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part : {"MTP weight must be", "got -1", "decayed MTP", "nan", "got -2"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace lethe
