#include "lethe/model/indexer.h"

#include <cmath>

#include "lethe/ops/hadamard.h"
#include "lethe/ops/indexer.h"
#include "lethe/ops/linear.h"
#include "lethe/ops/rope.h"

namespace lethe {

Indexer::Indexer(const ParamScope& scope, const ModelConfig& config)
    : heads_(config.index_heads),
      head_dim_(config.index_head_dim),
      topk_(config.index_topk),
      hadamard_(config.indexer_hadamard),
      wq_b_(scope.add("linear_wq_b.weight",
                      {config.index_heads * config.index_head_dim, config.q_lora_rank})),
      weights_proj_(scope.add("linear_weights_proj.weight", {config.index_heads, config.hidden})),
      compressor_(scope.sub("compressor"), config, kCsaRatio, config.index_head_dim) {}

Tensors Indexer::project(const MicroBatch& batch,
                         const at::Tensor& inv_freq,
                         const Tensors& inputs) const {
  const at::Tensor &x = inputs[0], &qa = inputs[1];
  at::Tensor q = ops::rope(ops::linear(qa, wq_b_).view({-1, heads_, head_dim_}),
                           batch.positions,
                           inv_freq,
                           /*inverse=*/false);
  at::Tensor k = compressor_.forward(x, x, batch, inv_freq);
  if (hadamard_) q = ops::hadamard(q), k = ops::hadamard(k);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_ * heads_));
  at::Tensor w = ops::linear(x, weights_proj_) * scale;
  return {std::move(q), std::move(k), std::move(w)};
}

at::Tensor Indexer::best(const MicroBatch& batch, const Tensors& projected) const {
  return std::get<0>(
      ops::lightning_indexer({.q = projected[0], .k = projected[1], .w = projected[2]},
                             batch.cu_seqlens,
                             kCsaRatio,
                             {.topk = topk_, .return_values = false}));
}

// Indices carry no gradient, and a replay takes those of forward (spec 3 R6.25). Where nobody else
// reads the projections it needs none of what leads to them either.
Tensors Indexer::choose(const ForwardPass& pass,
                        const at::Tensor& inv_freq,
                        const Tensors& inputs) const {
  const bool alone = pass.factors.indexer_loss == IndexerLoss::Off && !pass.observer;
  if (alone)
    return recorded(
        [&]() -> Tensors { return {best(pass.batch, project(pass.batch, inv_freq, inputs))}; });
  Tensors out = project(pass.batch, inv_freq, inputs);
  Tensors topk = recorded([&]() -> Tensors { return {best(pass.batch, out)}; });
  out.insert(out.begin(), std::move(topk[0]));
  return out;
}

void Indexer::forward(LayerState& state, const at::Tensor& inv_freq) const {
  const auto fn = [this, inv_freq, pass = state.pass](const Tensors& in) {
    return choose(*pass, inv_freq, in);
  };
  Tensors out = state.tape.run(SubgraphId::Indexer, fn, {state.x_indexer, state.qa});
  state.topk = std::move(out[0]);
  if (out.size() > 1) {
    state.index_q = std::move(out[1]);
    state.index_k = std::move(out[2]);
    state.index_w = std::move(out[3]);
  }
  if (state.is_observed()) off_record([&] { observe(state); });
  drop(state.x_indexer, state.qa);
}

void Indexer::observe(const LayerState& state) const {
  const at::NoGradGuard no_grad;
  state.observe("attn.indexer.k", hadamard_ ? ops::hadamard(state.index_k) : state.index_k);
  state.observe("attn.indexer.scores",
                ops::indexer_scores({.q = state.index_q, .k = state.index_k, .w = state.index_w},
                                    state.batch().cu_seqlens,
                                    kCsaRatio));
  state.observe("attn.indexer.topk", state.topk);
}

}  // namespace lethe
