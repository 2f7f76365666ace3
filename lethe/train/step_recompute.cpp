#include "lethe/train/step_recompute.h"

#include <string>

#include "lethe/base/error.h"
#include "lethe/plan/check_plan.h"

namespace lethe {
namespace {

bool has_checks(const RecomputePlan* plan) {
  return plan != nullptr && plan->checks != PlanChecks::Off;
}

/// Throws one RecomputeError with every problem.
void refuse(const StepCount& count) {
  std::string text;
  for (const std::string& problem : step_problems(count))
    text += (text.empty() ? "" : "\n  ") + problem;
  if (!text.empty()) throw RecomputeError(text);
}

void check_replays(const std::vector<RegionReport>& regions) {
  StepCount count;
  // Backward may have no use for a region; it has none for a second replay.
  for (const RegionReport& region : regions)
    count.regions.push_back(
        {.id = region.name, .replays = region.replays, .had_backward = region.replays > 0});
  refuse(count);
}

void add(RecomputeReport& sum, const RegionReport& region) {
  sum.forgettable += region.forgettable;
  sum.released += region.released;
  sum.retained += region.retained;
  sum.replays += region.replays;
  sum.early_stops += region.early_stops;
  sum.late_restores += region.late_restores;
  sum.replay_ns += region.replay_ns;
}

}  // namespace

MicroBatchTape::MicroBatchTape(const RecomputePlan* plan, int64_t micro_batch)
    : plan_(plan != nullptr && !plan->is_empty() ? plan : nullptr), micro_batch_(micro_batch) {
  if (plan_ != nullptr) tape_.emplace(TapeOptions{.checked = has_checks(plan_)});
}

RecomputePass MicroBatchTape::pass() {
  if (!tape_) return {};
  return {.tape = &*tape_, .plan = plan_, .micro_batch = micro_batch_};
}

void MicroBatchTape::forward_done() {
  if (tape_) regions_ = tape_->report();
}

void MicroBatchTape::backward_done(std::optional<RecomputeReport>& report) {
  if (!tape_) return;
  // Every saved byte is gone now; what is new are the counts.
  const std::vector<RegionReport> now = tape_->report();
  for (size_t i = 0; i < regions_.size(); ++i) {
    RegionReport& region = regions_[i];
    region.replays = now.at(i).replays;
    region.early_stops = now[i].early_stops;
    region.late_restores = now[i].late_restores;
    region.replay_ns = now[i].replay_ns;
  }
  if (has_checks(plan_)) check_replays(regions_);
  if (!report) report.emplace();
  for (RegionReport& region : regions_) {
    add(*report, region);
    report->regions.push_back(std::move(region));
  }
  regions_.clear();
}

void expect_no_regions(const RecomputePlan* plan) {
  if (has_checks(plan)) refuse({.live_regions = recompute_objects().regions});
}

}  // namespace lethe
