#include "lethe/model/moe.h"

#include <optional>

#include "lethe/core/node.h"
#include "lethe/ops/balance_loss.h"
#include "lethe/ops/experts.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/swiglu_mlp.h"
#include "lethe/recompute/kept_call.h"

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
  const at::Tensor scores = choose(state, router);
  state.observe("ffn.gate.scores", scores);
  const LossFactors& factors = state.factors();
  const bool balanced = factors.balance > 0 && (!hash_ || factors.balance_hash_layers);
  if (balanced)
    state.balance =
        ops::balance_loss(scores, state.batch().cu_seqlens, experts_per_token_) * factors.balance;
  state.observe("ffn.gate.indices", state.route_ids);
  state.observe("ffn.gate.weights", state.route_weights);
  tally(state, scores);
}

at::Tensor Moe::choose(LayerState& state, const at::Tensor& x) const {
  // A replay takes the choice of forward (spec 3 R6.25), which the same operator made; a copy of
  // it, as forward's is no choice yet where the operator saves it.
  const bool again = !hash_ && in_replay();
  at::Tensor chosen, given;
  if (again) {
    chosen = recorded([]() -> Tensors { return {}; })[0];
    off_record([&] { given = chosen.clone(); });
  }
  if (hash_) given = ops::gate_lookup(state.batch().ids, table_);
  const auto gate = [this, given](const Tensors& in) -> Tensors {
    const std::optional<at::Tensor> bias = hash_ ? std::nullopt : std::optional(bias_);
    const auto fixed = given.defined() ? std::optional(given) : std::nullopt;
    auto [weights, indices, scores] = ops::gate(
        in[0], gate_, bias, fixed, {experts_per_token_, score_function_, normalize_, route_scale_});
    return {std::move(weights), std::move(indices), std::move(scores)};
  };
  Tensors out = op_call("lethe::gate", gate, {x});
  state.route_weights = std::move(out[0]);
  state.route_ids = again ? chosen : out[1];
  if (!hash_ && !again) recorded([&]() -> Tensors { return {out[1]}; });
  return out[2];
}

// Counted during forwards that will be trained only (model spec 9.3).
void Moe::tally(LayerState& state, const at::Tensor& scores) const {
  if (hash_ || !at::GradMode::is_enabled() || !scores.requires_grad()) return;
  once([&] {
    at::Tensor& counts = state.pass->tally.expert_counts[static_cast<size_t>(state.layer)];
    const at::Tensor now = ops::expert_counts(state.route_ids, num_experts_);
    counts = counts.defined() ? counts + now : now;
  });
}

void Moe::dispatch(LayerState&) const {}

void Moe::run_experts(LayerState& state) const {
  const auto shared = [this](const Tensors& in) -> Tensors {
    return {ops::swiglu_mlp(in[0], shared_fc1_, shared_fc2_, shared_limit_)};
  };
  const auto region = [shared](const Tensors& in) {
    return op_call("lethe::swiglu_mlp", shared, in);
  };
  state.shared = state.tape.run(SubgraphId::SharedExpert, region, {state.x_shared})[0];
  const auto routed = [this](const Tensors& in) -> Tensors {
    return {ops::experts(in[0], in[1], in[2], fc1_, fc2_, limit_)};
  };
  state.routed =
      op_call("lethe::experts", routed, {state.x_experts, state.route_weights, state.route_ids})[0];
  drop(state.x_shared, state.x_experts, state.route_weights, state.route_ids);
}

void Moe::combine(LayerState& state) const {
  state.x = state.routed + state.shared;
  state.observe("ffn.out", state.x);
  drop(state.routed, state.shared);
}

}  // namespace lethe
