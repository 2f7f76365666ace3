#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/layer_state.h"

namespace lethe {

/// One mHC site (model spec 3): collapses the streams to the sub-layer's input and mixes its output
/// back. mapping_proj.weight [(2+n)n, nD], bias [(2+n)n], alpha_pre/post/res [1].
class HyperConnection final {
 public:
  enum class Site { Attention, Mlp };

  HyperConnection(const ParamScope& site_scope, const ModelConfig& config, Site site);

  /// streams -> residual, x, post, comb.
  void collapse(LayerState& state) const;

  /// x, residual, post, comb -> streams.
  void expand(LayerState& state) const;

 private:
  Site site_;
  int64_t iterations_;
  double norm_eps_, hc_eps_;
  at::Tensor fn_, base_, alpha_pre_, alpha_post_, alpha_res_;
};

/// The final collapse of the streams, without Sinkhorn (model spec 3.3). hc_head_fn/base/scale.
class StreamHead final {
 public:
  StreamHead(const ParamScope& scope, const ModelConfig& config);

  /// [T,n,D] -> [T,D]
  [[nodiscard]] at::Tensor forward(const at::Tensor& streams_TnD) const;

 private:
  double norm_eps_, hc_eps_;
  at::Tensor fn_, base_, scale_;
};

}  // namespace lethe
