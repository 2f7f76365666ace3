#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/micro_batch.h"

namespace lethe {

/// Pools each window of `ratio` tokens into one normalised, rotated slot (model spec 5).
/// Ratio 4 overlaps with the previous window. ape [r, coff*d], linear_wkv/linear_wgate.weight
/// [coff*d, D], norm.weight [d]. Used once per compressed layer (d = head_dim) and once inside each
/// indexer.
class Compressor final {
 public:
  Compressor(const ParamScope& scope, const ModelConfig& config, int64_t ratio, int64_t width);

  /// The two inputs are forks of one tensor [T,D], or that tensor twice where it has no history.
  /// Returns [C,d].
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_for_kv,
                                   const at::Tensor& x_for_gate,
                                   const MicroBatch& batch,
                                   const at::Tensor& inv_freq) const;

 private:
  int64_t ratio_;
  double eps_;
  at::Tensor ape_, wkv_, wgate_, norm_;
};

}  // namespace lethe
