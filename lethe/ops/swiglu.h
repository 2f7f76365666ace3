#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only: the clamped SwiGLU that the routed and the shared expert have in common
// (model spec 9.2).
namespace lethe::ops {

/// silu(min(gate, limit)) * clamp(up, -limit, limit) of projected [N,2I] = [gate, up]; limit 0 = no
/// clamp. Returns [N,I].
at::Tensor swiglu(const at::Tensor& projected, double limit);

/// Gradient at `projected` [N,2I] from d_y [N,I]: 0 for gate > limit and for |up| > limit, passed
/// at equality.
at::Tensor swiglu_gradient(const at::Tensor& projected, const at::Tensor& d_y, double limit);

}  // namespace lethe::ops
