#pragma once

#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// The shared expert: a clamped SwiGLU layer that every token passes.
///   [gate; up] = x fc1^T;  up clamped to [-limit, limit], gate to at most limit
///   y = (silu(gate) * up) fc2^T
/// x      [T,D] float32 | float64, any strides; the weights have the same dtype, or are
///        bfloat16 with float32 (widened for the products; their gradients are float32)
/// fc1    [2I,D], rows [gate; up]: hub w1 above w3
/// fc2    [D,I], hub w2
/// limit  SwiGLU clamp, 0 = none
/// Returns y [T,D] like x, contiguous. Differentiable in x, fc1 and fc2; saves these and the
/// fc1 product (2 I values per token), and recomputes the activation. The clamp passes the gradient
/// at equality. Double backward: error. The kernel is that of the routed experts, with one expert:
/// temporaries of a few tiles per thread. Throws ShapeError, DtypeError, ConfigError (negative
/// limit). Deterministic for a fixed thread count; with the kernel for any. Source: model spec 9.2.
at::Tensor swiglu_mlp(const at::Tensor& x,
                      const at::Tensor& fc1,
                      const at::Tensor& fc2,
                      double limit);

namespace reference {
/// y and the fc1 product [T,2I], [0,2I] unless kept.
std::tuple<at::Tensor, at::Tensor> swiglu_mlp(const at::Tensor& x,
                                              const at::Tensor& fc1,
                                              const at::Tensor& fc2,
                                              double limit,
                                              bool keep_projected);
}  // namespace reference

}  // namespace lethe::ops
