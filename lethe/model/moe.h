#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/layer_state.h"

namespace lethe {

/// Mixture of experts with one shared expert (model spec 9). A hash layer routes by token id
/// through a frozen table, a scored layer by the k best of score + bias. Each method is one node of
/// the layer program.
class Moe final {
 public:
  /// scope: "decoder.layers.<i>.mlp."
  Moe(const ParamScope& scope, const ModelConfig& config, bool hash);

  /// x -> route_weights, route_ids, balance; forks x for the shared and the routed experts.
  void route(LayerState& state) const;

  /// Tokens to experts; on one rank the local permutation is part of the experts' operator.
  void dispatch(LayerState& state) const;

  /// -> routed, shared
  void run_experts(LayerState& state) const;

  /// routed + shared -> x
  void combine(LayerState& state) const;

 private:
  /// -> route_weights, route_ids; returns the scores.
  [[nodiscard]] at::Tensor choose(LayerState& state, const at::Tensor& x) const;
  void tally(LayerState& state, const at::Tensor& scores) const;

  int64_t num_experts_, experts_per_token_;
  bool hash_, normalize_;
  std::string score_function_;
  double route_scale_, limit_, shared_limit_;
  at::Tensor gate_, bias_, table_, fc1_, fc2_, shared_fc1_, shared_fc2_;
};

}  // namespace lethe
