#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only: the kernel of the routed experts and of the shared one, on tensors.
namespace lethe::ops {

/// Checked arguments of lethe::experts; or of lethe::swiglu_mlp, then weights and indices are
/// undefined and fc1 [2I,D], fc2 [D,I] are those of one expert. x and weights float32.
struct ExpertInput {
  at::Tensor x, weights, indices, fc1, fc2;
  double limit;
};

/// y [T,D]; projected [routes,2I]: the first product of every sorted route, which backward reads,
/// or [0,2I] where it is not kept. Temporaries: the sorted routes (4 bytes for each) and a few
/// tiles per thread.
struct ExpertOutput {
  at::Tensor y, projected;
};

ExpertOutput fused_experts(const ExpertInput& in, bool keep_projected);

/// Which gradients to compute, and these: float32, undefined where not needed.
struct ExpertNeeds {
  bool x, weights, fc1, fc2;
};

struct ExpertGradients {
  at::Tensor x, weights, fc1, fc2;
};

ExpertGradients fused_experts_backward(const ExpertInput& in,
                                       const at::Tensor& projected,
                                       const at::Tensor& d_y,
                                       const ExpertNeeds& needed);

}  // namespace lethe::ops
