#pragma once

#include "lethe/core/node.h"
#include "lethe/ops/sparse_attention.h"

// Inside lethe/ops only.
namespace lethe::ops {

/// What the gradients of attention read besides its inputs.
struct AttentionGradInput {
  const at::Tensor& d_o;            // [T, H, c] gradient of o, rotated as o is
  const at::Tensor& o;              // [T, H, c] as returned
  const at::Tensor& lse_with_sink;  // [T, H]
};

/// Gradients of q, kv, slots (undefined without slots) and sink.
Tensors sparse_attention_gradients(const AttentionInputs& inputs,
                                   const AttentionRule& rule,
                                   const AttentionOutput& output,
                                   const AttentionGradInput& grad);

}  // namespace lethe::ops
