#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/compressor.h"
#include "lethe/model/indexer.h"
#include "lethe/model/layer_state.h"
#include "lethe/ops/sparse_attention.h"

namespace lethe {

/// DeepSeek-V4 attention (model spec 4-7): low-rank queries, one shared key-value head, window plus
/// compressed slots plus sink, grouped low-rank output. Each method is one node of the layer
/// program.
class Attention final {
 public:
  /// scope: "decoder.layers.<i>.self_attention."; inv_freq: the layer's one rotary table.
  Attention(const ParamScope& scope, const ModelConfig& config, int64_t ratio, at::Tensor inv_freq);

  /// x -> q, kv, and the inputs of indexer and compressor.
  void project(LayerState& state) const;

  /// -> topk; nothing in layers without an indexer.
  void index(LayerState& state) const;

  /// -> slots; nothing in window-only layers.
  void compress(LayerState& state) const;

  /// q, kv, slots, topk -> o, lse and, for the indexer's loss, slot_mass.
  void attend(LayerState& state) const;

  /// o -> x: output projections, the indexer's loss.
  void project_out(LayerState& state) const;

 private:
  [[nodiscard]] ops::AttentionRule rule() const;
  void fork_input(LayerState& state, at::Tensor& x_q, at::Tensor& x_kv) const;
  [[nodiscard]] at::Tensor make_query(const LayerState& state, const at::Tensor& qa) const;
  [[nodiscard]] bool wants_loss(const LayerState& state) const;
  /// Whether the indexer's loss will look at exactly the slots that attention reads.
  [[nodiscard]] bool wants_slot_mass(const LayerState& state) const;
  void attach_indexer_loss(LayerState& state) const;

  int64_t heads_, head_dim_, o_groups_, window_, ratio_;
  double eps_, scale_;
  at::Tensor inv_freq_;
  at::Tensor q_down_, q_norm_, q_up_, kv_proj_, kv_norm_, o_group_, o_proj_, sink_;
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<Indexer> indexer_;
};

}  // namespace lethe
