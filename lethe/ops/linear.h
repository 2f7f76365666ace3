#pragma once

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Linear map without bias: y = x w^T.
/// x  [..., in], w [out, in]: float32 | bfloat16 each, or both float64; any strides; computed in
///    float32 (float64 for float64)
/// Returns y [..., out], dtype of x, contiguous. Differentiable in both (dx = dy w, dw = dy^T x,
/// dx in the dtype of x, dw unrounded in float32 or float64); double backward: error. Throws
/// ShapeError, DtypeError. Deterministic; bits of the kernel do not depend on the thread count,
/// those of the reference do. Source: model spec 0.2 (W x), 2 (no linear layer has a bias).
at::Tensor linear(const at::Tensor& x, const at::Tensor& w);

namespace reference {
at::Tensor linear(const at::Tensor& x, const at::Tensor& w);
}

}  // namespace lethe::ops
