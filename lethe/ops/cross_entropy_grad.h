#pragma once

#include "lethe/core/node.h"

// Inside lethe/ops only: the gradient of cross_entropy().
namespace lethe::ops {

/// in.grads: of the loss sum; in.saved: hidden, head, labels, lse. Gradients of hidden and head;
/// none of labels. fused: by the kernel, float32.
Tensors cross_entropy_backward(const BackwardInput& in, int64_t chunk_tokens, bool fused);

}  // namespace lethe::ops
