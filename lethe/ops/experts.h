#pragma once

#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// The routed experts: every token through its k experts, summed.
///   [gate; up] = x fc1[e]^T;  up clamped to [-limit, limit], gate to at most limit
///   y[t] = sum over the experts e of t:  (silu(gate) * up * weights[t,e]) fc2[e]^T
/// x        [T,D] float32 | float64, any strides; all floating tensors have one dtype, or fc1 and
///          fc2 are bfloat16 with float32 (widened piece by piece; their gradients are float32)
/// weights  [T,k] route weights, applied before fc2
/// indices  [T,k] int32 expert ids in [0, E)
/// fc1      [E,2I,D], rows [gate; up]: hub w1 above w3
/// fc2      [E,D,I], hub w2
/// limit    SwiGLU clamp, 0 = none
/// Returns y [T,D] like x, contiguous. Tokens are permuted once, by a stable sort by expert; the k
/// parts of a token are added in ascending expert id.
/// Differentiable in x, weights, fc1 and fc2; saves these, the indices and the fc1 product of every
/// route (2 I k values per token), and recomputes the activation. The clamp passes the gradient at
/// equality. An expert without tokens gets a zero gradient. Double backward: error.
/// Temporaries of the kernel: 4 bytes for each route, and a few tiles per thread.
/// Throws ShapeError, DtypeError, ConfigError (negative limit); DataError naming the first id out
/// of range. Deterministic for a fixed thread count; with the kernel for any. Source: model
/// spec 9.2.
at::Tensor experts(const at::Tensor& x,
                   const at::Tensor& weights,
                   const at::Tensor& indices,
                   const at::Tensor& fc1,
                   const at::Tensor& fc2,
                   double limit);

namespace reference {
/// y and the fc1 product [T*k,2I] of the routes sorted by expert, [0,2I] unless kept.
std::tuple<at::Tensor, at::Tensor> experts(const at::Tensor& x,
                                           const at::Tensor& weights,
                                           const at::Tensor& indices,
                                           const at::Tensor& fc1,
                                           const at::Tensor& fc2,
                                           double limit,
                                           bool keep_projected);
}  // namespace reference

}  // namespace lethe::ops
