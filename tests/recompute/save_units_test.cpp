#include <algorithm>

#include "recompute/model_run.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/plan/save_targets.h"
#include "lethe/train/step_recompute.h"

// The save units of DeepSeek-V4 against what its layers do: a unit resolves by the names of
// operators, and keeps something only where a layer calls them by these names (spec 3 R6.9, R6.35).
namespace lethe::test {
namespace {

RecomputePlan whole_layers_with(const PlanSubject& subject, const std::vector<std::string>& units) {
  return make_recompute_plan(subject,
                             {.granularity = RecomputeGranularity::Full,
                              .method = RecomputeMethod::Uniform,
                              .num_layers = 1},
                             units);
}

const RegionReport* find_region(const std::vector<RegionReport>& regions, const std::string& name) {
  const auto found = std::find_if(
      regions.begin(), regions.end(), [&name](const RegionReport& r) { return r.name == name; });
  return found == regions.end() ? nullptr : &*found;
}

int64_t bytes_of_call(const RegionReport& region, const std::string& call) {
  for (const KeptReport& kept : region.kept)
    if (kept.name == call) return kept.bytes;
  return 0;
}

// Layers of every kind: window, CSA and HCA attention, hash and scored routers, an MTP block.
TEST(SaveUnitsOfV4, EveryCallOfAUnitIsKeptInEveryLayerThatHasIt) {
  const RunCase which;
  const PlanSubject subject = subject_of(which);
  for (const SaveTarget& target : deepseek_v4_save_targets().targets) {
    const std::string unit(save_unit_name(target.unit));
    SCOPED_TRACE(unit);
    const ModelRun run = train_steps(which, whole_layers_with(subject, {unit}), 1);
    for (const StageLayer& layer : stage_layers(subject)) {
      const std::string name = layer_label(subject, layer.index) + ".mb0.layer";
      const RegionReport* region = find_region(run.forgotten, name);
      ASSERT_NE(region, nullptr) << name;
      // The only one that some layers lack is the compressor: without slots nothing is pooled.
      const bool has_it = !target.needs_slots || layer.kind.ratio > 0;
      for (const std::string& call : target.names)
        EXPECT_EQ(bytes_of_call(*region, call) > 0, has_it) << name << " " << call;
      EXPECT_EQ(region->kept.size(), has_it ? target.names.size() : 0) << name;
    }
  }
}

// A name without a prediction would end a run under --recompute-checks with an internal error.
TEST(SaveUnitsOfV4, EveryCallOfAUnitHasAPrediction) {
  const RunCase which;
  const PlanSubject subject = subject_of(which);
  std::vector<std::string> units;
  for (const SaveTarget& target : deepseek_v4_save_targets().targets)
    units.emplace_back(save_unit_name(target.unit));
  const RecomputePlan plan = whole_layers_with(subject, units);
  for (const auto& [region, rows] : predicted_units(subject, plan, shape_of(which), 0))
    for (const UnitBytes& unit : rows)
      for (const KeptBytes& call : unit.calls) {
        EXPECT_GT(call.bytes, 0) << region << " " << call.call;
        EXPECT_LE(call.inside + call.output + call.added, call.bytes) << region << " " << call.call;
      }
}

// What the record of a step says of each unit.
TEST(SaveUnitsOfV4, AStepReportsWhatAUnitKeepsBesideItsPrediction) {
  install_byte_accounting();
  const RunCase which;
  const PlanSubject subject = subject_of(which);
  RecomputeChoice choice{.subject = subject,
                         .plan = whole_layers_with(subject, {"experts", "compressor"}),
                         .units = {}};
  choice.plan.checks = PlanChecks::Checked;  // DC5 compares both
  const auto model = lively_model(model_of(which), {}, /*seed=*/7);
  const MicroBatch batch = random_batch(model->config(), {19, 5, 24}, 100);
  RunTally tally = model->make_tally();
  StepReport report;
  MicroBatchTape tape(&choice, 0);
  {
    const ModelOutput out =
        model->forward(batch, all_losses(model->config()), tally, {}, tape.pass());
    tape.forward_done({.documents = batch.documents});
    out.total.backward();
  }
  tape.backward_done(report);
  ASSERT_TRUE(report.recompute);
  const std::vector<UnitReport>& units = report.recompute->units;
  ASSERT_EQ(units.size(), 2u);
  for (const UnitReport& unit : units) {
    EXPECT_GT(unit.kept, 0) << unit.unit;
    EXPECT_EQ(unit.kept, unit.predicted) << unit.unit;
    EXPECT_GT(unit.forward_ns, 0) << unit.unit;
  }
  EXPECT_EQ(units[0].unit, "experts");
  EXPECT_EQ(units[1].unit, "compressor");
}

}  // namespace
}  // namespace lethe::test
