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

void Indexer::forward(LayerState& state, const at::Tensor& inv_freq) const {
  const at::Tensor q = ops::linear(state.qa, wq_b_).view({-1, heads_, head_dim_});
  const at::Tensor rotated = ops::rope(q, state.batch.positions, inv_freq, /*inverse=*/false);
  const at::Tensor key =
      compressor_.forward(state.x_indexer, state.x_indexer, state.batch, inv_freq);
  state.index_q = hadamard_ ? ops::hadamard(rotated) : rotated;
  state.index_k = hadamard_ ? ops::hadamard(key) : key;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_ * heads_));
  state.index_w = ops::linear(state.x_indexer, weights_proj_) * scale;
  {
    const at::NoGradGuard no_grad;  // indices carry no gradient
    state.topk = std::get<0>(
        ops::lightning_indexer({.q = state.index_q, .k = state.index_k, .w = state.index_w},
                               state.batch.cu_seqlens,
                               kCsaRatio,
                               {.topk = topk_, .return_values = false}));
  }
  if (state.observer) observe(state, key);
  drop(state.x_indexer, state.qa);
}

void Indexer::observe(const LayerState& state, const at::Tensor& key) const {
  const at::NoGradGuard no_grad;
  state.observe("attn.indexer.k", key);
  state.observe("attn.indexer.scores",
                ops::indexer_scores({.q = state.index_q, .k = state.index_k, .w = state.index_w},
                                    state.batch.cu_seqlens,
                                    kCsaRatio));
  state.observe("attn.indexer.topk", state.topk);
}

}  // namespace lethe
