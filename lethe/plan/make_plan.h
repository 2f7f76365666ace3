#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/plan/layer_plan.h"
#include "lethe/plan/recompute_priority.h"

// From a model and the user's choice to the plan of one pipeline stage (spec 3 4, 5). Pure.
namespace lethe {

/// What a plan is made for and checked against.
struct PlanSubject {
  ModelConfig model;
  OperatorFacts operators;
  PipelineShape pipeline;  // num_layers is the model's
  int64_t pipeline_rank = 0;
  bool holds_mtp = true;  // the stage has the MTP blocks

  /// The whole model on one rank.
  static PlanSubject of(const ModelConfig& model, const OperatorFacts& operators = {});
};

/// One layer of a stage.
struct StageLayer {
  int64_t index = 0;  // main layers, then MTP blocks, of the whole model, from 0
  int64_t chunk = 0;  // virtual stage; an MTP block is in the last one
  LayerKind kind;
};

/// The layers of the stage, chunk by chunk, MTP blocks last: what layer_to_class follows.
[[nodiscard]] std::vector<StageLayer> stage_layers(const PlanSubject& subject);

/// "L3", "MTP0": how errors and region ids name a layer.
[[nodiscard]] std::string layer_label(const PlanSubject& subject, int64_t index);

/// The plan that the configuration asks for; empty (RecomputePlan::is_empty) where it asks for
/// nothing. It passes check_plan. save_units: the resolved names (plan/save_targets.h), kept
/// inside whole layers; config.allow_mutation speaks of these. swap_layer_inputs: those of main
/// layers that nothing gives back and whose backward does not come first. Throws ConfigError where
/// a choice fits no layer of the model: a module without counterpart, a vision ratio, a part of
/// layers where every layer that takes part is recomputed whole [RC9].
[[nodiscard]] RecomputePlan make_recompute_plan(const PlanSubject& subject,
                                                const RecomputeConfig& config,
                                                const std::vector<std::string>& save_units = {},
                                                bool swap_layer_inputs = false);

}  // namespace lethe
