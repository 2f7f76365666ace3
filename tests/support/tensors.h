#pragma once

#include <vector>

#include "support/token_counts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

namespace lethe::test {

inline at::TensorOptions fp64() {
  return at::TensorOptions().dtype(at::kDouble);
}

/// A float64 normal leaf that requires a gradient.
inline at::Tensor random_leaf(at::IntArrayRef shape, double scale = 1) {
  return (at::randn(shape, fp64()) * scale).requires_grad_();
}

/// A fresh leaf with these values, which requires a gradient.
inline at::Tensor leaf_of(const at::Tensor& values, at::ScalarType dtype = at::kDouble) {
  return values.detach().to(dtype).clone().requires_grad_();
}

/// Gradients of sum(y * cotangent); an input that y does not depend on fails.
inline std::vector<at::Tensor> gradients(const at::Tensor& y,
                                         const std::vector<at::Tensor>& inputs,
                                         const at::Tensor& cotangent) {
  return torch::autograd::grad({y}, inputs, {cotangent.to(y.scalar_type())});
}

}  // namespace lethe::test
