#pragma once

namespace at {
class Tensor;
}

namespace lethe {

/// Gradients of bfloat16 leaves in float32. Autograd rounds a gradient to its leaf's type, unless
/// the leaf names another one, which LibTorch can from 2.10 on.

/// Whether this LibTorch can.
[[nodiscard]] bool has_leaf_gradient_dtype();

/// Gradients that reach `leaf` (bfloat16, requires a gradient) arrive and accumulate in float32.
/// Call it before the first forward that uses the leaf.
/// Throws ConfigError when this LibTorch cannot.
void keep_float32_gradient(const at::Tensor& leaf);

/// Whether keep_float32_gradient was called on this leaf.
[[nodiscard]] bool keeps_float32_gradient(const at::Tensor& leaf);

}  // namespace lethe
