#include "lethe/train/step_recompute.h"

#include <algorithm>

#include "support/expect_error.h"
#include "support/tiny_configs.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "lethe/base/error.h"
#include "lethe/plan/make_plan.h"

namespace lethe {
namespace {

using test::expect_error;

constexpr int64_t kElements = 256;

RecomputePlan some_plan(PlanChecks checks) {
  RecomputeConfig config;
  config.csa_attention = true;
  config.checks = checks;
  return make_recompute_plan(PlanSubject::of(test::tiny_a()), config);
}

// A region that saves one tensor of kElements inside.
at::Tensor loss_of_a_region(MicroBatchTape& tape, int64_t micro_batch) {
  const at::Tensor x = at::ones({kElements}).requires_grad_();
  const RegionSpec spec{.name = fmt::format("L0.mb{}.mlp", micro_batch), .random = false};
  return tape.pass()
      .tape
      ->run(
          spec, [](const at::Tensor& in) { return at::sin(at::exp(in)); }, x)
      .sum();
}

TEST(MicroBatchTape, WhereNothingIsRecomputedThereIsNoTape) {
  const RecomputePlan empty;
  for (const RecomputePlan* plan : {static_cast<const RecomputePlan*>(nullptr), &empty}) {
    MicroBatchTape tape(plan, 0);
    EXPECT_EQ(tape.pass().tape, nullptr);
    EXPECT_EQ(tape.pass().plan, nullptr);
    std::optional<RecomputeReport> report;
    tape.forward_done();
    tape.backward_done(report);
    EXPECT_FALSE(report);
  }
}

TEST(MicroBatchTape, TheReportHasBytesOfForwardAndReplaysOfBackward) {
  const RecomputePlan plan = some_plan(PlanChecks::Off);
  std::optional<RecomputeReport> report;
  for (int64_t i = 0; i < 2; ++i) {
    MicroBatchTape tape(&plan, i);
    EXPECT_EQ(tape.pass().plan, &plan);
    EXPECT_EQ(tape.pass().micro_batch, i);
    const at::Tensor loss = loss_of_a_region(tape, i);
    tape.forward_done();
    loss.backward();
    tape.backward_done(report);
  }
  ASSERT_TRUE(report);
  ASSERT_EQ(report->regions.size(), 2u);
  EXPECT_EQ(report->regions[1].name, "L0.mb1.mlp");
  EXPECT_EQ(report->replays, 2);
  EXPECT_EQ(report->released, 2 * kElements * 4);
  EXPECT_EQ(report->forgettable, report->released + report->retained);
  EXPECT_EQ(report->late_restores, 0);
  EXPECT_GT(report->replay_ns, 0);
  EXPECT_EQ(report->replay_ns, report->regions[0].replay_ns + report->regions[1].replay_ns);
}

TEST(MicroBatchTape, ChecksRefuseASecondReplayAndWhatIsLeftBehind) {
  for (const PlanChecks checks : {PlanChecks::Off, PlanChecks::Checked}) {
    const bool refuses = checks != PlanChecks::Off;
    const RecomputePlan plan = some_plan(checks);
    std::optional<RecomputeReport> report;
    MicroBatchTape tape(&plan, 0);
    at::Tensor loss = loss_of_a_region(tape, 0);
    tape.forward_done();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    if (refuses) {
      expect_error<RecomputeError>([&] { tape.backward_done(report); },
                                   {"[DC3]", "L0.mb0.mlp", "got 2"});
      expect_error<RecomputeError>([&] { expect_no_regions(&plan); }, {"[DC4]", "live regions"});
    } else {
      tape.backward_done(report);
      EXPECT_EQ(report->replays, 2);
      EXPECT_NO_THROW(expect_no_regions(&plan));
    }
    loss.reset();
    EXPECT_NO_THROW(expect_no_regions(&plan));
  }
}

}  // namespace
}  // namespace lethe
