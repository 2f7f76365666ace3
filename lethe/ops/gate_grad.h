#pragma once

#include "lethe/core/node.h"
#include "lethe/ops/score_function.h"

// Inside lethe/ops only: the gradient of gate().
namespace lethe::ops {

/// What gate() computes, without its tensors.
struct GateRule {
  int64_t k;
  ScoreFunction score_function;
  bool normalize;
  double scale;
};

/// T, D, E of these tensors and the rule, as the kernels take them.
kernels::GateShape gate_shape(const at::Tensor& x, const at::Tensor& weight, const GateRule& rule);

/// in.grads: of weights and scores; in.saved: x, weight, scores, indices. Gradients of x and
/// weight.
Tensors gate_backward(const BackwardInput& in, const GateRule& rule);

/// The same by the kernel: float32.
Tensors gate_backward_fused(const BackwardInput& in, const GateRule& rule);

}  // namespace lethe::ops
