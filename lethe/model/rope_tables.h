#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"

namespace lethe {

/// The two rotary frequency tables of a model, float32 [rd/2], never cast (model spec 4.1).
struct RopeTables {
  at::Tensor main;      // rope_theta, no YaRN: layers with ratio 0
  at::Tensor compress;  // compress_rope_theta with YaRN: all tensors of a layer with ratio > 0

  explicit RopeTables(const ModelConfig& config, at::Device device = at::kCPU);

  /// One layer has one table for all of its tensors.
  [[nodiscard]] const at::Tensor& of(int64_t ratio) const { return ratio == 0 ? main : compress; }
};

}  // namespace lethe
