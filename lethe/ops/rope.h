#pragma once

#include "lethe/kernels/rope_table.h"

namespace at {
class Tensor;
}

namespace lethe::ops {

using kernels::RopeYarn;

/// The frequencies of a rotary table as a CPU tensor, [rope_dims / 2] float32.
/// Stays float32 when a model is cast. Throws ConfigError. Source: model spec 4.1.
at::Tensor rope_inv_freq(int64_t rope_dims, double theta, const std::optional<RopeYarn>& yarn);

/// Rotary position embedding of interleaved pairs, out of place, on the last 2 * numel(inv_freq)
/// channels; the channels before them pass unchanged. For pair m at position p:
///   angle = fp32(fp32(p) * inv_freq[m])
///   y[2m] = x[2m] cos - x[2m+1] sin;  y[2m+1] = x[2m] sin + x[2m+1] cos
/// x          [T, d] | [T, H, d] float32 | bfloat16 | float64, any strides; cos, sin and the
///            rotation in float32 (float64 for float64)
/// positions  [T] int64, position of every token in its own document
/// inv_freq   [rd / 2] float32, rd <= d
/// inverse    rotate by the negative angle
/// Returns y like x, contiguous. Differentiable in x (the gradient is rotated back); double
/// backward: error. Throws ShapeError, DtypeError. Deterministic for any thread count.
/// Source: model spec 4.1.
at::Tensor rope(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool inverse);

namespace reference {
at::Tensor rope(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool inverse);
}

}  // namespace lethe::ops
