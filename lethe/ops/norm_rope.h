#pragma once

#include <optional>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// RMS norm over the last dimension, then the rotation of its last 2 * numel(inv_freq) channels:
/// rope(rms_norm(x, weight, eps), positions, inv_freq, false), in one pass over memory.
/// x          [T, d] | [T, H, d] float32 | bfloat16 | float64, any strides; computed in float32
///            (float64 for float64) and rounded to x's type once
/// weight     [d] float32 (float64 with float64 x), or absent = no weight
/// positions  [T] int64, position of every token in its own document
/// inv_freq   [rd / 2] float32, rd <= d
/// Returns y like x, contiguous. Saves x, weight, positions and inv_freq only. Differentiable in x
/// and weight; double backward: error. Throws ShapeError, DtypeError. Float32 on the CPU:
/// deterministic for any thread count. Source: model spec 2 (RMSNorm), 4, 4.1.
at::Tensor norm_rope(const at::Tensor& x,
                     const std::optional<at::Tensor>& weight,
                     const at::Tensor& positions,
                     const at::Tensor& inv_freq,
                     double eps);

namespace reference {
at::Tensor norm_rope(const at::Tensor& x,
                     const std::optional<at::Tensor>& weight,
                     const at::Tensor& positions,
                     const at::Tensor& inv_freq,
                     double eps);
}

}  // namespace lethe::ops
