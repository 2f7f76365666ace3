#pragma once

#include <span>

#include "lethe/config/run_config.h"
#include "lethe/data/batches.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/optim/optimizer.h"
#include "lethe/train/recompute_trace.h"
#include "lethe/train/run_record.h"
#include "lethe/train/step_recompute.h"

namespace lethe {

/// Groups of the trained parameters (model spec 12): weight decay on matrices, none on vectors.
std::vector<ParameterGroup> optimizer_groups(const ParamStore& params, const TrainConfig& train);

/// The table of a run's parameter groups, for people (optim/group_table.h). Makes no weights.
std::string optimizer_table(const RunConfig& config);

/// Bytes that a run's tensors will have whatever its data.
struct SizePrediction {
  int64_t parameters = 0;
  int64_t gradients = 0;  // of the trained parameters, float32
  int64_t optimizer = 0;  // moments, momenta and masters
};

/// Makes no weights.
SizePrediction predict_sizes(const RunConfig& config);

/// Which parameters train: all, or the indexers alone; an indexer without a loss is frozen (model
/// spec 6).
void choose_trained(DeepseekV4& model, const TrainConfig& train);

/// What is decided about one step before it: by the schedules (plan/learning_rate.h,
/// plan/loss_schedule.h), and what it recomputes.
struct StepSchedule {
  double learning_rate = 0;
  double mtp_weight = 0;                       // lambda of model spec 10
  const RecomputeChoice* recompute = nullptr;  // nothing where null or empty; outlives the step
  RecomputeTrace* trace = nullptr;             // its step has begun; null: nobody looks
  const SwapTier* swap = nullptr;              // not null where the plan swaps
};

/// One optimizer step over the micro-batches of a global batch: forwards, backwards, gradient norm,
/// clipping, update, router biases.
/// Fills the losses, the norm, the bytes and the recompute of the report. Throws NumericError
/// before the update when a loss or a gradient is not finite, RecomputeError when a replay or a
/// check of the plan fails, OutOfArena, SwapError and DataError of the host tier: parameters and
/// optimizer are then as before the step.
StepReport run_step(DeepseekV4& model,
                    Optimizer& optimizer,
                    std::span<const Batch> micro_batches,
                    const TrainConfig& train,
                    const StepSchedule& schedule);

/// Mean main loss per counted token over the batches, without gradients.
double evaluate(const DeepseekV4& model, std::span<const Batch> batches);

}  // namespace lethe
