#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// One linear map per group of channels: y[t, g, :] = w[g] o[t, g, :].
/// o       [T, G*K], w [G*R, K] (row block g belongs to group g): float32 | bfloat16 each, or both
///         float64; any strides; computed in float32 (float64 for float64)
/// groups  G >= 1
/// Returns y [T, G*R], dtype of o, contiguous. Differentiable in both; double backward: error.
/// Throws ShapeError, DtypeError, ConfigError. Deterministic; bits of the kernel do not depend on
/// the thread count, those of the reference do. Source: model spec 4 (wo_a).
at::Tensor grouped_linear(const at::Tensor& o, const at::Tensor& w, int64_t groups);

namespace reference {
at::Tensor grouped_linear(const at::Tensor& o, const at::Tensor& w, int64_t groups);
}

}  // namespace lethe::ops
