#pragma once

#include "lethe/core/node.h"
#include "lethe/ops/sparse_attention.h"
#include "lethe/ops/sparse_attention_grad.h"

// Inside lethe/ops only: sparse attention by its kernel, for float32 tensors on the CPU. Inputs are
// checked.
namespace lethe::ops {

AttentionResult sparse_attention_fused(const AttentionInputs& inputs,
                                       const AttentionRule& rule,
                                       const AttentionOutput& output);

/// Like sparse_attention_gradients.
Tensors sparse_attention_fused_gradients(const AttentionInputs& inputs,
                                         const AttentionRule& rule,
                                         const AttentionOutput& output,
                                         const AttentionGradInput& grad);

}  // namespace lethe::ops
