#pragma once

#include "lethe/core/node.h"

// Inside lethe/ops only: the gradient of experts() by its definition.
namespace lethe::ops {

/// in.grads: of y; in.saved: x, weights, indices, fc1, fc2, and the fc1 product of the sorted
/// routes. Gradients of all but the indices.
Tensors experts_backward(const BackwardInput& in, double limit);

}  // namespace lethe::ops
