#pragma once

#include <span>

#include "lethe/config/run_config.h"
#include "lethe/data/batches.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/optim/adamw.h"
#include "lethe/train/run_record.h"

namespace lethe {

/// Groups of the trained parameters (model spec 12): weight decay on matrices, none on vectors.
std::vector<ParameterGroup> optimizer_groups(const ParamStore& params, const TrainConfig& train);

/// Which parameters train: all, or the indexers alone; an indexer without a loss is frozen (model
/// spec 6).
void choose_trained(DeepseekV4& model, const TrainConfig& train);

/// One optimizer step over the micro-batches of a global batch: forwards, backwards, gradient norm,
/// clipping, update, router biases.
/// Fills the losses, the norm and the bytes of the report. Throws NumericError before the update
/// when a loss or a gradient is not finite: parameters and optimizer are then as before the step.
StepReport run_step(DeepseekV4& model,
                    AdamW& optimizer,
                    std::span<const Batch> micro_batches,
                    const TrainConfig& train,
                    double learning_rate);

/// Mean main loss per counted token over the batches, without gradients.
double evaluate(const DeepseekV4& model, std::span<const Batch> batches);

}  // namespace lethe
