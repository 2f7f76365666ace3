#pragma once

#include <span>

#include "lethe/config/run_config.h"
#include "lethe/data/batches.h"
#include "lethe/model/layer_state.h"

namespace lethe {

/// Counted labels of one step's micro-batches, the denominators of its losses.
struct StepCounts {
  int64_t tokens = 0;
  int64_t main = 0;          // labels that count
  std::vector<int64_t> mtp;  // per depth: labels that count after depth + 1 further shifts
  int64_t micro_batches = 0;
};

/// Counts over all micro-batches of one optimizer step, so that the gradient is the one of a single
/// large batch whatever the division (model spec 8.1, 10).
StepCounts count_labels(std::span<const Batch> micro_batches, int64_t num_mtp);

/// The factors of spec 1 8-10 for these counts, with the MTP weight of the step
/// (plan/loss_schedule.h). A loss without a counted label gets factor 0.
LossFactors loss_factors(const TrainConfig& train, const StepCounts& counts, double mtp_weight);

}  // namespace lethe
