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

RecomputeChoice choice_of(RecomputePlan plan) {
  return {.subject = PlanSubject::of(test::tiny_a()), .plan = std::move(plan), .units = {}};
}

RecomputeChoice some_choice(PlanChecks checks) {
  RecomputeConfig config;
  config.csa_attention = true;
  config.checks = checks;
  return choice_of(make_recompute_plan(PlanSubject::of(test::tiny_a()), config));
}

MicroBatchShape one_document() {
  return {.documents = Documents::from_lengths(std::vector<int64_t>{16})};
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
  const RecomputeChoice empty = choice_of({});
  for (const RecomputeChoice* choice : {static_cast<const RecomputeChoice*>(nullptr), &empty}) {
    MicroBatchTape tape(choice, 0);
    EXPECT_EQ(tape.pass().tape, nullptr);
    EXPECT_EQ(tape.pass().plan, nullptr);
    StepReport report;
    tape.forward_done(one_document());
    tape.backward_done(report);
    EXPECT_FALSE(report.recompute);
    EXPECT_FALSE(report.swap);
  }
}

TEST(MicroBatchTape, TheReportHasBytesOfForwardAndReplaysOfBackward) {
  const RecomputeChoice choice = some_choice(PlanChecks::Off);
  StepReport report;
  for (int64_t i = 0; i < 2; ++i) {
    MicroBatchTape tape(&choice, i);
    EXPECT_EQ(tape.pass().plan, &choice.plan);
    EXPECT_EQ(tape.pass().micro_batch, i);
    const at::Tensor loss = loss_of_a_region(tape, i);
    tape.forward_done(one_document());
    loss.backward();
    tape.backward_done(report);
  }
  ASSERT_TRUE(report.recompute);
  ASSERT_EQ(report.recompute->regions.size(), 2u);
  EXPECT_EQ(report.recompute->regions[1].name, "L0.mb1.mlp");
  EXPECT_EQ(report.recompute->replays, 2);
  EXPECT_EQ(report.recompute->released, 2 * kElements * 4);
  EXPECT_EQ(report.recompute->forgettable, report.recompute->released + report.recompute->retained);
  EXPECT_EQ(report.recompute->late_restores, 0);
  EXPECT_GT(report.recompute->replay_ns, 0);
  EXPECT_EQ(report.recompute->replay_ns,
            report.recompute->regions[0].replay_ns + report.recompute->regions[1].replay_ns);
}

TEST(MicroBatchTape, ChecksRefuseASecondReplayAndWhatIsLeftBehind) {
  for (const PlanChecks checks : {PlanChecks::Off, PlanChecks::Checked}) {
    const bool refuses = checks != PlanChecks::Off;
    RecomputeChoice choice = some_choice(checks);
    choice.all_train = false;  // its region is none of the plan's
    StepReport report;
    MicroBatchTape tape(&choice, 0);
    at::Tensor loss = loss_of_a_region(tape, 0);
    tape.forward_done(one_document());
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    if (refuses) {
      expect_error<RecomputeError>([&] { tape.backward_done(report); },
                                   {"[DC3]", "L0.mb0.mlp", "got 2"});
      expect_error<RecomputeError>([&] { expect_nothing_left(&choice); },
                                   {"[DC4]", "live regions"});
    } else {
      tape.backward_done(report);
      EXPECT_EQ(report.recompute->replays, 2);
      EXPECT_NO_THROW(expect_nothing_left(&choice));
    }
    loss.reset();
    EXPECT_NO_THROW(expect_nothing_left(&choice));
  }
}

// DC5: what a region frees is what the plan predicts for the micro-batch, or the step ends.
TEST(MicroBatchTape, ChecksRefuseARegionThatFreesSomethingElse) {
  const RecomputeChoice choice = some_choice(PlanChecks::Checked);
  MicroBatchTape tape(&choice, 0);
  const RegionSpec spec{.name = "L0.mb0.q_up", .random = false};
  const at::Tensor x = at::ones({kElements}).requires_grad_();
  const auto fn = [](const at::Tensor& in) { return at::sin(at::exp(in)); };
  const at::Tensor loss = tape.pass().tape->run(spec, fn, x).sum();
  expect_error<RecomputeError>([&] { tape.forward_done(one_document()); },
                               {"[DC5]", "L0.mb0.q_up", "as predicted", "got 1024"});
}

TEST(MicroBatchTape, ChecksRefuseARegionThatThePlanDoesNotHave) {
  const RecomputeChoice choice = some_choice(PlanChecks::Checked);
  MicroBatchTape tape(&choice, 0);
  const at::Tensor x = at::ones({kElements}).requires_grad_();
  const auto fn = [](const at::Tensor& in) { return at::sin(at::exp(in)); };
  const at::Tensor loss = tape.pass().tape->run("L0.mb0.other", fn, x).sum();
  expect_error<RecomputeError>([&] { tape.forward_done(one_document()); },
                               {"[DC5]", "L0.mb0.other must release 0 bytes", "got 1024"});
}

// A plan that swaps needs no tape; what is left in the tier when backward is through is refused.
TEST(MicroBatchTape, SwapsAreReportedAndNoneMayBeLeft) {
  const PlanSubject subject = PlanSubject::of(test::tiny_a());
  RecomputePlan plan = make_recompute_plan(subject, {}, {}, /*swap_layer_inputs=*/true);
  plan.checks = PlanChecks::Checked;
  const SwapTier tier = make_swap_tier({.offload_budget_mb = 1}, subject.model.num_layers, true);
  StepReport report;
  const RecomputeChoice choice = choice_of(std::move(plan));
  MicroBatchTape tape(&choice, 0, &tier);
  EXPECT_EQ(tape.pass().tape, nullptr);
  LayerInputSwap& swap = *tape.pass().swap;
  const at::Tensor x = at::ones({2048}).requires_grad_(), input = at::exp(x);
  at::Tensor loss = at::sin(input).sum();
  EXPECT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  swap.settle();
  expect_error<RecomputeError>([&] { tape.backward_done(report); }, {"[DC4]", "swap entries"});
  swap.trigger_at(0, loss);
  loss.backward();
  tape.backward_done(report);
  ASSERT_TRUE(report.swap);
  EXPECT_FALSE(report.recompute);
  EXPECT_EQ(report.swap->counts.bytes_out, 2048 * 4);
  EXPECT_EQ(report.swap->counts.bytes_in, 2048 * 4);
  EXPECT_EQ(report.swap->host_bytes_peak, 2048 * 4);
}

TEST(MicroBatchTape, ATierWithoutItsFolderIsRefused) {
  expect_error<DataError>(
      [] { (void)make_swap_tier({.offload_folder = "/no/such/folder"}, 4, false); },
      {"/no/such/folder"});
}

}  // namespace
}  // namespace lethe
