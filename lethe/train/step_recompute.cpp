#include "lethe/train/step_recompute.h"

#include <algorithm>

#include <fmt/format.h>

#include "lethe/base/error.h"
#include "lethe/core/storage_guard.h"
#include "lethe/offload/cpu_swap_backend.h"
#include "lethe/plan/check_plan.h"

namespace lethe {
namespace {

bool has_checks(const RecomputeChoice* choice) {
  return choice != nullptr && choice->plan.checks != PlanChecks::Off;
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

// What the save units of a region keep.
void add(std::vector<UnitReport>& sums,
         const RegionReport& region,
         const std::vector<UnitBytes>& predicted) {
  for (const UnitBytes& unit : predicted) {
    auto sum = std::find_if(
        sums.begin(), sums.end(), [&unit](const UnitReport& s) { return s.unit == unit.unit; });
    if (sum == sums.end()) sum = sums.insert(sum, UnitReport{.unit = unit.unit});
    sum->predicted += unit.bytes();
    for (const KeptReport& kept : region.kept) {
      const bool is_of_unit =
          std::any_of(unit.calls.begin(), unit.calls.end(), [&kept](const KeptBytes& call) {
            return call.call == kept.name;
          });
      if (!is_of_unit) continue;
      sum->kept += kept.bytes;
      sum->forward_ns += kept.forward_ns;
    }
  }
}

}  // namespace

SwapTier make_swap_tier(const SwapConfig& config, int64_t num_layers, bool checked) {
  constexpr int64_t kMiB = 1 << 20;
  return {.policy = {.num_layers = num_layers,
                     .prefetch_distance = config.prefetch_distance,
                     .min_bytes = config.min_bytes,
                     .checked = checked},
          .backend = make_cpu_swap_backend(config.offload_budget_mb * kMiB, config.offload_folder)};
}

MicroBatchTape::MicroBatchTape(const RecomputeChoice* choice,
                               int64_t micro_batch,
                               const SwapTier* tier)
    : choice_(choice != nullptr && !choice->plan.is_empty() ? choice : nullptr),
      micro_batch_(micro_batch) {
  if (choice_ == nullptr) return;
  if (choice_->plan.recomputes()) tape_.emplace(TapeOptions{.checked = has_checks(choice_)});
  if (!choice_->plan.swaps()) return;
  if (tier == nullptr) fail_internal("step: a plan that swaps must have a host tier, got none");
  tier_ = tier;
  swap_.emplace(fmt::format("mb{}", micro_batch_), tier_->policy, tier_->backend);
}

// After an error the engine of autograd keeps nodes until its next backward, and with them entries.
MicroBatchTape::~MicroBatchTape() {
  if (swap_) swap_->drop();
}

RecomputePass MicroBatchTape::pass() {
  return {.tape = tape_ ? &*tape_ : nullptr,
          .plan = choice_ == nullptr ? nullptr : &choice_->plan,
          .micro_batch = micro_batch_,
          .swap = swap_ ? &*swap_ : nullptr};
}

void MicroBatchTape::forward_done(const MicroBatchShape& shape) {
  if (!tape_) return;
  regions_ = tape_->report();
  units_ = predicted_units(choice_->subject, choice_->plan, shape, micro_batch_);
  if (has_checks(choice_) && choice_->all_train) check_freed(shape);
}

void MicroBatchTape::check_freed(const MicroBatchShape& shape) const {
  std::map<std::string, int64_t> predicted =
      predicted_bytes(choice_->subject, choice_->plan, shape, micro_batch_);
  StepCount count;
  for (const RegionReport& region : regions_) {
    const auto found = predicted.find(region.name);
    RegionCount& row = count.regions.emplace_back();
    row = {.id = region.name, .had_backward = false, .released_bytes = region.released};
    if (found != predicted.end()) row.predicted_bytes = found->second;
    if (const auto units = units_.find(region.name); units != units_.end())
      for (const UnitBytes& unit : units->second) row.predicted_kept_bytes += unit.bytes();
    for (const KeptReport& kept : region.kept) row.kept_bytes += kept.bytes;
    if (found != predicted.end()) predicted.erase(found);
  }
  for (const auto& [id, bytes] : predicted)  // never ran
    count.regions.push_back({.id = id, .had_backward = false, .predicted_bytes = bytes});
  refuse(count);
}

void MicroBatchTape::backward_done(StepReport& report) {
  if (tape_) report_recompute(report.recompute);
  if (swap_) report_swap(report.swap);
}

void MicroBatchTape::report_swap(std::optional<SwapReport>& report) const {
  const SwapStats stats = swap_->stats();
  const SwapBackendReport host = tier_->backend->report();
  if (has_checks(choice_))
    refuse(
        {.swap_entries = stats.entries_out - stats.entries_in - stats.cancelled - stats.dropped});
  if (!report) report.emplace();
  report->counts += stats;
  report->host_bytes_peak = host.host_bytes_peak;
}

void MicroBatchTape::report_recompute(std::optional<RecomputeReport>& report) {
  // Every saved byte is gone now; what is new are the counts.
  const std::vector<RegionReport> now = tape_->report();
  for (size_t i = 0; i < regions_.size(); ++i) {
    RegionReport& region = regions_[i];
    region.replays = now.at(i).replays;
    region.early_stops = now[i].early_stops;
    region.late_restores = now[i].late_restores;
    region.replay_ns = now[i].replay_ns;
  }
  if (has_checks(choice_)) check_replays(regions_);
  if (!report) report.emplace();
  for (RegionReport& region : regions_) {
    add(*report, region);
    if (const auto units = units_.find(region.name); units != units_.end())
      add(report->units, region, units->second);
    report->regions.push_back(std::move(region));
  }
  regions_.clear();
}

void expect_nothing_left(const RecomputeChoice* choice) {
  if (has_checks(choice))
    refuse({.live_regions = recompute_objects().regions, .released_storages = emptied_storages()});
}

}  // namespace lethe
