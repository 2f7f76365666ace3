#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only.
namespace lethe::ops {

/// The type in which an operator computes: float64 for float64 inputs (gradient checks), else
/// float32 (spec README, decision 10).
inline at::ScalarType compute_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Tensor widen(const at::Tensor& x) {
  return x.to(compute_dtype(x));
}

}  // namespace lethe::ops
