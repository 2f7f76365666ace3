#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lethe/plan/make_plan.h"

// The static checks of a plan (spec 3 4.4) and the counts that the dynamic ones compare (4.5).
namespace lethe {

/// Bytes per rank, where a budget was given.
struct PlanBudget {
  int64_t budget_bytes = 0;
  int64_t predicted_peak_bytes = 0;
};

/// Every violation, one sentence each: "recompute plan [SC1] CLASS: WHAT; WAY OUT". Empty for a
/// plan that may run. Ids are SC1 to SC17 of the specification, SC0 for a plan that does not
/// describe these layers at all, and R6.25 for a choice that is not recorded.
[[nodiscard]] std::vector<std::string> plan_problems(const PlanSubject& subject,
                                                     const RecomputePlan& plan,
                                                     const std::optional<PlanBudget>& budget = {});

/// Throws one RecomputeError with every violation.
void check_plan(const PlanSubject& subject,
                const RecomputePlan& plan,
                const std::optional<PlanBudget>& budget = {});

/// What is worth knowing and no error, one sentence each: releases later than the last read
/// (SC15), sub-graphs left out and why (SC11), regions that free nothing and who keeps their
/// output.
[[nodiscard]] std::vector<std::string> plan_notes(const PlanSubject& subject,
                                                  const RecomputePlan& plan);

/// What the runtime counted for one region execution.
struct RegionCount {
  std::string id;  // "L3.mb0.sparse"
  int64_t replays = 0;
  bool had_backward = true;
  int64_t released_bytes = 0, predicted_bytes = 0;
  int64_t kept_bytes = 0, predicted_kept_bytes = 0;  // by its save units
};

/// What a step left behind.
struct StepCount {
  std::vector<RegionCount> regions;
  int64_t live_regions = 0, released_storages = 0, swap_entries = 0;
};

/// Violations of DC3 (one replay per backward), DC4 (nothing left at the end of a step) and DC5
/// (released and kept bytes are the predicted ones), one sentence each.
[[nodiscard]] std::vector<std::string> step_problems(const StepCount& step);

}  // namespace lethe
