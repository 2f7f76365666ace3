#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lethe/config/run_config.h"
#include "lethe/plan/make_plan.h"
#include "lethe/plan/save_targets.h"
#include "lethe/plan/saved_bytes.h"

// What a run recomputes and swaps (spec 3 4.3, 6): settings to a plan, before anything is made. No
// tensors.
namespace lethe {

/// Decided before the first step, the same for all steps of a process.
struct RecomputeChoice {
  PlanSubject subject;
  RecomputePlan plan;     // empty: the engine is not used
  ResolvedUnits units;    // kept resident inside layers that are recomputed whole
  bool all_train = true;  // else values without a gradient are saved by nobody, whatever the plan
  std::vector<std::string> warnings;  // settings that this plan gives no effect, and why
};

/// A choice as the record of a run begins with it.
struct RecomputeFacts {
  std::string plan;                                          // plan_hash of plan/plan_file.h
  std::vector<std::pair<std::string, std::string>> classes;  // layers, and what they do
  std::vector<std::string> save_units;                       // the list that pins them (R6.3)
};

/// Which operators a run executes, where plans depend on it (spec 3 3.2).
[[nodiscard]] OperatorFacts operator_facts(const TrainConfig& train);

/// One micro-batch whose rows are one document each: as many slots as it can have.
[[nodiscard]] MicroBatchShape micro_batch_shape(const RunConfig& config);

/// What save units may resolve to: the operators of this build. DeepSeek-V4 declares no callables.
[[nodiscard]] SaveNames save_names();

/// Makes the plan that the settings ask for, or reads --recompute-plan, whose checks
/// --recompute-checks may only add to. Save units that are kept, or missing under
/// --save-units-missing warn, are told in the log, and so is what has no effect: a ratio that is
/// less than one layer, units that no layer has (they are not among the choice's), a plan that
/// recomputes nothing. Throws ConfigError for a choice that fits no part of this model and for a
/// file that is no plan; RecomputeError for a plan of another model or mode, or one that a static
/// check refuses; DataError for a file that cannot be read.
[[nodiscard]] RecomputeChoice choose_recompute(const RunConfig& config);

/// Writes --save-recompute-plan, where it is given. DataError.
void save_chosen_plan(const RunConfig& config, const RecomputeChoice& choice);

/// Nothing where nothing is recomputed or swapped.
[[nodiscard]] std::optional<RecomputeFacts> recompute_facts(const RunConfig& config,
                                                            const RecomputeChoice& choice);

/// For the start of a run, one line per class of layers:
///   plan    L0-L1  main/window/hash csa, frees 1.2 MiB a layer and micro-batch
/// Empty where nothing is recomputed or swapped.
[[nodiscard]] std::string plan_lines(const RunConfig& config, const RecomputeChoice& choice);

/// For the start of a run that swaps: "swap    inputs of layers, 4.0 GiB of memory".
[[nodiscard]] std::string swap_line(const SwapConfig& swap);

/// For --dry-run: the plan, region by region, with the bytes that it frees in a micro-batch.
[[nodiscard]] std::string plan_page(const RunConfig& config, const RecomputeChoice& choice);

/// For lethe units: what each save unit of the model covers, as a table or as JSON.
[[nodiscard]] std::string units_page(const RunConfig& config);

}  // namespace lethe
