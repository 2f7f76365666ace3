#pragma once

#include <optional>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Root-mean-square normalisation over the last dimension.
///   y = w * (x * rsqrt(mean(x^2) + eps))
/// x       [..., D] float32 | bfloat16 | float64; computed in float32 (float64 for float64), any
/// strides weight  [D] float32 (float64 with float64 x), or absent = no weight (the per-head norm
/// of q) Returns y like x, contiguous. Differentiable in both; double backward: error. Throws
/// ShapeError, DtypeError. Deterministic for a fixed thread count. Source: model spec 2 (RMSNorm),
/// 4 (per-head norm).
at::Tensor rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps);

namespace reference {
at::Tensor rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps);
}

}  // namespace lethe::ops
