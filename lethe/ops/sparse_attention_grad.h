#pragma once

#include "lethe/core/node.h"
#include "lethe/ops/sparse_attention.h"

// Inside lethe/ops only.
namespace lethe::ops {

/// Gradients of q, kv, slots (undefined without slots) and sink, given d_o, o and lse_with_sink [T,
/// H].
Tensors sparse_attention_gradients(const AttentionInputs& inputs,
                                   const AttentionRule& rule,
                                   const at::Tensor& d_o,
                                   const at::Tensor& o,
                                   const at::Tensor& lse_with_sink);

}  // namespace lethe::ops
