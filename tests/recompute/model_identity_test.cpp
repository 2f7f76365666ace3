#include <map>

#include "recompute/model_run.h"
#include "support/process_threads.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/live_blocks.h"
#include "lethe/core/storage_guard.h"
#include "lethe/plan/check_plan.h"
#include "lethe/recompute/region_trace.h"
#include "lethe/train/recompute_trace.h"

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

// What a region keeps is what its save units predict, call by call. Returns those of the bytes that
// a run without recompute would not hold.
int64_t expect_kept(const RegionReport& region,
                    const std::map<std::string, std::vector<UnitBytes>>& predicted) {
  std::map<std::string, int64_t> kept, wanted;
  for (const KeptReport& row : region.kept) kept[row.name] = row.bytes;
  int64_t added = 0;
  if (const auto units = predicted.find(region.name); units != predicted.end())
    for (const UnitBytes& unit : units->second)
      for (const KeptBytes& call : unit.calls) {
        wanted[call.call] = call.bytes;
        added += call.added;
      }
  EXPECT_EQ(kept, wanted) << region.name;
  return added;
}

// Of every region, and of all together: what is freed and kept is what the plan predicts.
void expect_predicted_bytes(const RunCase& which,
                            const std::string& name,
                            const RecomputePlan& plan) {
  SCOPED_TRACE(name + ", " + which.text());
  const PlanSubject subject = subject_of(which);
  const ModelRun run = train_steps(which, plan, 1);
  const auto freed = predicted_bytes(subject, plan, shape_of(which), 0);
  const auto units = predicted_units(subject, plan, shape_of(which), 0);
  int64_t drop = swapped_bytes(which, plan);
  for (const RegionReport& region : run.forgotten) {
    const auto found = freed.find(region.name);
    ASSERT_TRUE(found != freed.end()) << region.name;
    EXPECT_EQ(region.released, found->second) << region.name;
    drop += found->second - expect_kept(region, units);
  }
  EXPECT_EQ(run.forgotten.size(), freed.size());
  EXPECT_EQ(plain_run(which).saved_bytes - run.saved_bytes, drop);
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

// To the byte.
TEST_F(ModelIdentity, TheBytesFreedAreThosePredicted) {
  for (const RunCase& which : {RunCase{}, RunCase{.packed = true, .mtp = false}})
    for (const RecomputeMode& mode : recompute_modes(subject_of(which)))
      expect_predicted_bytes(which, mode.name, mode.plan);
}

// Save units and nested regions of all sorts, beside each other.
TEST_F(ModelIdentity, RandomPlansFreeTheBytesPredicted) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RunCase which{.packed = seed % 2 == 1};
    expect_predicted_bytes(
        which, fmt::format("seed {}", seed), random_plan(subject_of(which), seed));
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

// What a step may leave behind without the next one taking it up.
std::string held_by(const BlockWatch& watch, RegionTrace& trace, const ModelRun& run) {
  return fmt::format(
      "{} bytes in {} storages, {} storages emptied, {} bytes in the host tier, {} regions, {} "
      "saved tensors, {} threads, {} events of the step",
      bytes().live,
      watch.live().blocks.size(),
      emptied_storages(),
      run.host_bytes,
      recompute_objects().regions,
      recompute_objects().saved,
      thread_names().size(),
      trace.take().size());
}

// With statistics of every step, a trace and the list of blocks.
TEST_F(ModelIdentity, AHundredStepsLeaveNothingBehind) {
  const RunCase which;
  const RecomputePlan plan = everything_on(which);
  train_steps(which, plan, 3);
  const int64_t live = bytes().live;
  const size_t threads = thread_names().size();
  {
    const TempFolder folder;
    RecomputeTrace statistics(folder.path(), subject_of(which), plan, {.num_steps = 0});
    const BlockWatch watch;
    RegionTrace trace;
    std::string early;
    train_steps(which, plan, 100, [&](int step, const ModelRun& run) {
      statistics.begin_step(step);
      statistics.end_step(run.forgotten);
      EXPECT_GT(run.swapped.entries_in, 0);
      EXPECT_EQ(run.host_bytes, 0);
      EXPECT_EQ(recompute_objects().regions, 0);
      EXPECT_EQ(recompute_objects().saved, 0);
      const std::string now = held_by(watch, trace, run);
      if (step < 10)
        early = now;
      else
        EXPECT_EQ(now, early) << "after step " << step;
    });
    EXPECT_EQ(trace.dropped(), 0);
  }
  EXPECT_EQ(bytes().live, live);
  EXPECT_EQ(thread_names().size(), threads);
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
