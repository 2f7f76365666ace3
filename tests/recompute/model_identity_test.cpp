#include <map>

#include "recompute/model_run.h"
#include "support/process_threads.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/plan/check_plan.h"

// Whatever is recomputed, every bit is that of the run that recomputes nothing (spec 3 7.1).
namespace lethe::test {
namespace {

const ModelRun& plain_run(const RunCase& which) {
  static std::map<RunCase, ModelRun> runs;
  const auto found = runs.find(which);
  if (found != runs.end()) return found->second;
  return runs.emplace(which, train_three_steps(which, {})).first->second;
}

void expect_same_bits(const RunCase& which, const std::string& name, const RecomputePlan& plan) {
  SCOPED_TRACE(name + ", " + which.text());
  ASSERT_EQ(plan_problems(subject_of(which), plan), std::vector<std::string>{});
  try {
    const ModelRun run = train_three_steps(which, plan);
    EXPECT_EQ(first_difference(plain_run(which).values, run.values), "");
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_EQ(recompute_objects().regions, 0);
  EXPECT_EQ(recompute_objects().saved, 0);
}

bool has_whole_layers(const RecomputePlan& plan) {
  for (const LayerPlan& layer : plan.classes)
    if (layer.find(SubgraphId::Layer) != nullptr) return true;
  return false;
}

// Of one micro-batch; the streams that enter the first layer are one memory.
int64_t swapped_bytes(const RunCase& which, const RecomputePlan& plan) {
  const PlanSubject subject = subject_of(which);
  int64_t sum = 0;
  for (size_t i = 0; i < plan.layer_to_class.size(); ++i)
    if (plan.layer(i).swaps_input())
      sum += act_bytes(subject.model,
                       sizes_of(subject.model, shape_of(which), plan.layer(i).kind),
                       {SubgraphId::LayerInput, 0}) /
             (i == 0 ? subject.model.streams : 1);
  return sum;
}

class ModelIdentity : public testing::Test {
 protected:
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(ModelIdentity, ARunRepeatsItself) {
  for (const RunCase& which : {run_cases().front(), run_cases().back()})
    EXPECT_EQ(first_difference(plain_run(which).values, train_three_steps(which, {}).values), "")
        << which.text();
}

// Two cases per mode, one the opposite of the other: every mode meets every value of the others.
TEST_F(ModelIdentity, EveryModeHasTheBitsOfNone) {
  const std::vector<RunCase> cases = run_cases();
  const size_t num_modes = recompute_modes(subject_of(cases[0])).size();
  for (size_t i = 0; i < num_modes; ++i)
    for (const size_t k : {i % cases.size(), cases.size() - 1 - i % cases.size()}) {
      const RecomputeMode mode = recompute_modes(subject_of(cases[k]))[i];
      expect_same_bits(cases[k], mode.name, mode.plan);
    }
}

TEST_F(ModelIdentity, RandomPlansHaveTheBitsOfNone) {
  const std::vector<RunCase> cases = run_cases();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RunCase& which = cases[seed % cases.size()];
    expect_same_bits(which, fmt::format("seed {}", seed), random_plan(subject_of(which), seed));
  }
}

TEST_F(ModelIdentity, EveryModeSavesBytesAndReplays) {
  const RunCase which;
  for (const RecomputeMode& mode : recompute_modes(subject_of(which))) {
    if (mode.plan.is_empty()) continue;
    const ModelRun run = train_three_steps(which, mode.plan);
    EXPECT_LT(run.saved_bytes, plain_run(which).saved_bytes) << mode.name;
    int64_t replays = 0, released = 0;
    for (const RegionReport& region : run.replayed) replays += region.replays;
    for (const RegionReport& region : run.forgotten) released += region.released;
    EXPECT_EQ(replays > 0, mode.plan.recomputes()) << mode.name;
    EXPECT_EQ(released > 0, mode.plan.recomputes()) << mode.name;
    EXPECT_EQ(run.swapped.bytes_out > 0, mode.plan.swaps()) << mode.name;
    EXPECT_EQ(run.swapped.entries_out, run.swapped.entries_in + run.swapped.cancelled);
    EXPECT_EQ(run.swapped.dropped, 0);
  }
}

// Of every region, and of all together: what is freed is what the plan predicts, to the byte.
TEST_F(ModelIdentity, TheBytesFreedAreThosePredicted) {
  for (const RunCase& which : {RunCase{}, RunCase{.packed = true, .mtp = false}}) {
    const PlanSubject subject = subject_of(which);
    for (const RecomputeMode& mode : recompute_modes(subject)) {
      if (has_whole_layers(mode.plan)) continue;
      SCOPED_TRACE(mode.name + ", " + which.text());
      const ModelRun run = train_three_steps(which, mode.plan);
      const std::map<std::string, int64_t> predicted =
          predicted_bytes(subject, mode.plan, shape_of(which), 0);
      int64_t sum = 0;
      sum += swapped_bytes(which, mode.plan);
      for (const RegionReport& region : run.forgotten) {
        EXPECT_EQ(region.released, predicted.at(region.name)) << region.name;
        sum += predicted.at(region.name);
      }
      EXPECT_EQ(run.forgotten.size(), predicted.size());
      EXPECT_EQ(plain_run(which).saved_bytes - run.saved_bytes, sum);
    }
  }
}

// Parts, norms, mHC blocks, experts, swapped inputs and every check at once.
RecomputePlan everything_on(const RunCase& which) {
  RecomputePlan plan = make_recompute_plan(subject_of(which),
                                           {.granularity = RecomputeGranularity::Selective,
                                            .modules = {"moe"},
                                            .csa_attention = true,
                                            .mhc = true,
                                            .mhc_layer_num = 2,
                                            .norm = true},
                                           {},
                                           /*swap_layer_inputs=*/true);
  plan.checks = PlanChecks::Checked;
  return plan;
}

TEST_F(ModelIdentity, AHundredStepsLeaveNothingBehind) {
  const RunCase which;
  const RecomputePlan plan = everything_on(which);
  train_steps(which, plan, 3);
  const int64_t live = bytes().live;
  const size_t threads = thread_names().size();
  const ModelRun run = train_steps(which, plan, 100);
  EXPECT_GT(run.swapped.entries_in, 0);
  EXPECT_EQ(bytes().live, live);
  EXPECT_EQ(thread_names().size(), threads);
  EXPECT_EQ(recompute_objects().regions, 0);
  EXPECT_EQ(recompute_objects().saved, 0);
}

TEST_F(ModelIdentity, AnExceptionInAReplayLeavesTheNextStepCorrect) {
  const RunCase which;
  const RecomputePlan plan = everything_on(which);
  bool throws = true;
  {
    const ContextPart part([] { return std::any(); },
                           [&throws](const std::any&) {
                             if (std::exchange(throws, false))
                               fail<DataError>("thrown in a replay");
                           });
    EXPECT_THROW(train_three_steps(which, plan), DataError);
  }
  EXPECT_FALSE(throws);
  EXPECT_EQ(first_difference(plain_run(which).values, train_three_steps(which, plan).values), "");
  // The engine drops what waited in its queue when the next backward begins.
  EXPECT_EQ(recompute_objects().regions, 0);
}

TEST_F(ModelIdentity, SkippedMtpBlocksHaveNoRegion) {
  const RunCase which;
  RecomputeConfig config{.csa_attention = true, .mhc = true};
  const auto mtp_regions = [&] {
    int64_t count = 0;
    const RecomputePlan plan = make_recompute_plan(subject_of(which), config);
    for (const RegionReport& region : train_three_steps(which, plan).forgotten)
      count += region.name.starts_with("MTP0.") ? 1 : 0;
    return count;
  };
  EXPECT_GT(mtp_regions(), 0);
  config.mtp = MtpSelection::Skip;
  EXPECT_EQ(mtp_regions(), 0);
}

}  // namespace
}  // namespace lethe::test
