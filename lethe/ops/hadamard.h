#pragma once

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Orthonormal Hadamard transform of the last dimension, Sylvester (natural) order, by butterflies.
///   y = d^-0.5 * H_d x,  H_2d = [[H_d, H_d], [H_d, -H_d]],  H_1 = 1
/// x  [..., d] float32 | bfloat16 | float64, d a power of two, any strides; computed in float32
///    (float64 for float64)
/// Returns y like x, contiguous. Differentiable (the transform is its own transpose and inverse);
/// double backward: error. Throws ShapeError, DtypeError. Deterministic for any thread count.
/// Source: model spec 6.1.
at::Tensor hadamard(const at::Tensor& x);

namespace reference {
at::Tensor hadamard(const at::Tensor& x);
}

}  // namespace lethe::ops
