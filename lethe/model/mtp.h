#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/hyper_connection.h"
#include "lethe/model/layer.h"

namespace lethe {

/// One multi-token-prediction block (model spec 10): joins the streams of the block before with the
/// embedding of the token `depth + 1` ahead, runs a full layer (ratio 0, scored MoE) and its own
/// head norm. Embedding and LM head are the model's.
class MtpBlock final {
 public:
  /// scope: "mtp.layers.<depth>."
  MtpBlock(const ParamScope& scope, const ModelConfig& config, at::Tensor inv_freq);

  /// state.streams: the previous streams [T,n,D] in, this block's out.
  /// embedded: [T,D], embedding of the ids shifted left by depth + 1.
  /// Returns the hidden state before the LM head, [T,D].
  [[nodiscard]] at::Tensor forward(LayerState& state,
                                   const at::Tensor& embedded,
                                   bool streams_read_again) const;

 private:
  [[nodiscard]] at::Tensor join(const at::Tensor& embedded, const at::Tensor& streams) const;

  double norm_eps_;
  at::Tensor e_proj_, h_proj_, e_norm_, h_norm_, final_norm_;
  Layer layer_;
  StreamHead head_;
};

}  // namespace lethe
