#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "lethe/core/node.h"

// Inside lethe/ops only: what the operators that normalise share.
namespace lethe::ops {

/// x floating [..., D], weight [D] in x's computing type or absent. Throws ShapeError, DtypeError.
void check_norm(const char* op, const at::Tensor& x, const std::optional<at::Tensor>& weight);

/// For a kernel's optional arguments.
inline const float* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

inline float* mutable_data_or_null(const at::Tensor& t) {
  return t.defined() ? t.data_ptr<float>() : nullptr;
}

/// The gradient of the RMS norm in ATen, any dtype. in: grads {d_y}, saved {x, weight or undefined,
/// ...}, needed {x, weight, ...}. Returns {d_x, d_weight}.
Tensors rms_norm_gradient(const BackwardInput& in, double eps);

}  // namespace lethe::ops
