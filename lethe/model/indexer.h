#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/compressor.h"
#include "lethe/model/layer_state.h"

namespace lethe {

/// The lightning indexer of a ratio-4 layer (model spec 6): scores every visible slot for every
/// query and keeps the best K. Runs on tensors without history, so only the KL loss trains it.
/// linear_wq_b.weight [nI*dI, qr], linear_weights_proj.weight [nI, D], compressor.*.
class Indexer final {
 public:
  Indexer(const ParamScope& scope, const ModelConfig& config);

  /// x_indexer, qa -> topk, and for the KL loss or an observer index_q, index_k, index_w.
  void forward(LayerState& state, const at::Tensor& inv_freq) const;

 private:
  /// The sub-graph: {x, qa} -> {topk, q, k, w}, or {topk} alone.
  [[nodiscard]] Tensors choose(const ForwardPass& pass,
                               const at::Tensor& inv_freq,
                               const Tensors& inputs) const;

  /// {x, qa} -> {q, k, w}.
  [[nodiscard]] Tensors project(const MicroBatch& batch,
                                const at::Tensor& inv_freq,
                                const Tensors& inputs) const;

  /// {q, k, w} -> int32 [T,K].
  [[nodiscard]] at::Tensor best(const MicroBatch& batch, const Tensors& projected) const;
  void observe(const LayerState& state) const;

  int64_t heads_, head_dim_, topk_;
  bool hadamard_;
  at::Tensor wq_b_, weights_proj_;
  Compressor compressor_;
};

}  // namespace lethe
