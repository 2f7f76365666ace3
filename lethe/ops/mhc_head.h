#pragma once

#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Final collapse of the n streams. No softmax, no Sinkhorn, no division by n.
///   x = X flattened to [T, nD];  mix = (x fn^T) * rsqrt(mean(x^2) + norm_eps)
///   y = sum_i a[i] X[i],  a = sigmoid(mix * scale + base) + hc_eps
/// streams  X [T, n, D] float32 | bfloat16 | float64; computed in float32 (float64 for float64)
/// fn       [n, nD], base [n], scale [1]: the computing type
/// Returns y [T, D] like streams. Differentiable in all four; double backward: error.
/// Throws ShapeError, DtypeError. Deterministic for a fixed thread count.
/// The dispatcher's lethe::mhc_head returns two more, which the gradient reads: mix [T, n] and the
/// reciprocal root mean square [T, 1].
/// Source: model spec 3.3, 3.4.
at::Tensor mhc_head(const at::Tensor& streams,
                    const at::Tensor& fn,
                    const at::Tensor& base,
                    const at::Tensor& scale,
                    double norm_eps,
                    double hc_eps);

namespace reference {
/// y, mix, reciprocal root mean square.
std::tuple<at::Tensor, at::Tensor, at::Tensor> mhc_head(const at::Tensor& streams,
                                                        const at::Tensor& fn,
                                                        const at::Tensor& base,
                                                        const at::Tensor& scale,
                                                        double norm_eps,
                                                        double hc_eps);
}  // namespace reference

}  // namespace lethe::ops
