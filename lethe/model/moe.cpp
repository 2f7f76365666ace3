#include "lethe/model/moe.h"

#include <optional>

#include "lethe/core/node.h"
#include "lethe/ops/balance_loss.h"
#include "lethe/ops/experts.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/swiglu_mlp.h"

namespace lethe {

Moe::Moe(const ParamScope& scope, const ModelConfig& c, bool hash)
    : num_experts_(c.num_experts),
      experts_per_token_(c.experts_per_token),
      hash_(hash),
      normalize_(c.normalize_topk),
      score_function_(c.score_function),
      route_scale_(c.route_scale),
      limit_(c.swiglu_limit),
      shared_limit_(c.clamp_shared_expert ? c.swiglu_limit : 0),
      gate_(scope.add("router.weight", {c.num_experts, c.hidden})),
      fc1_(scope.add("experts.fc1", {c.num_experts, 2 * c.expert_width, c.hidden})),
      fc2_(scope.add("experts.fc2", {c.num_experts, c.hidden, c.expert_width})),
      shared_fc1_(scope.add("shared_experts.linear_fc1.weight", {2 * c.expert_width, c.hidden})),
      shared_fc2_(scope.add("shared_experts.linear_fc2.weight", {c.hidden, c.expert_width})) {
  if (hash_)
    table_ = scope.add("router.tid2eid", {c.vocab_size, c.experts_per_token});
  else
    bias_ = scope.add("router.expert_bias", {c.num_experts});
}

// The gradients of the MoE input are added in this order: shared expert, routed experts, router
// (spec 5 1.3 e).
void Moe::route(LayerState& state) const {
  auto [shared, routed, router] = forked<3>(state.x);
  state.x_shared = std::move(shared);
  state.x_experts = std::move(routed);
  drop(state.x);
  const std::optional<at::Tensor> bias = hash_ ? std::nullopt : std::optional(bias_);
  const std::optional<at::Tensor> given =
      hash_ ? std::optional(ops::gate_lookup(state.batch.ids, table_)) : std::nullopt;
  auto [weights, indices, scores] = ops::gate(
      router, gate_, bias, given, {experts_per_token_, score_function_, normalize_, route_scale_});
  state.route_weights = std::move(weights);
  state.route_ids = std::move(indices);
  state.observe("ffn.gate.scores", scores);
  const bool balanced = state.factors.balance > 0 && (!hash_ || state.factors.balance_hash_layers);
  if (balanced)
    state.balance = ops::balance_loss(scores, state.batch.cu_seqlens, experts_per_token_) *
                    state.factors.balance;
  state.observe("ffn.gate.indices", state.route_ids);
  state.observe("ffn.gate.weights", state.route_weights);
  tally(state, scores);
}

// Counted during forwards that will be trained only (model spec 9.3).
void Moe::tally(LayerState& state, const at::Tensor& scores) const {
  if (hash_ || !at::GradMode::is_enabled() || !scores.requires_grad()) return;
  at::Tensor& counts = state.tally.expert_counts[static_cast<size_t>(state.layer)];
  const at::Tensor now = ops::expert_counts(state.route_ids, num_experts_);
  counts = counts.defined() ? counts + now : now;
}

void Moe::dispatch(LayerState&) const {}

void Moe::run_experts(LayerState& state) const {
  state.shared = ops::swiglu_mlp(state.x_shared, shared_fc1_, shared_fc2_, shared_limit_);
  state.routed =
      ops::experts(state.x_experts, state.route_weights, state.route_ids, fc1_, fc2_, limit_);
  drop(state.x_shared, state.x_experts, state.route_weights, state.route_ids);
}

void Moe::combine(LayerState& state) const {
  state.x = state.routed + state.shared;
  state.observe("ffn.out", state.x);
  drop(state.routed, state.shared);
}

}  // namespace lethe
