#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace lethe::ops {

/// Which keys a query sees, and the scale of the inner products.
struct AttentionRule {
  int64_t window;  // the last `window` tokens including the query's own, >= 1
  int64_t ratio;   // tokens per slot; 0 = window only, else >= 2
  double scale;    // tau, > 0
};

/// The tensors attention reads: q, kv, slots and sink share one dtype, float32 | float64; any
/// strides. References: fill it where it is used.
struct AttentionInputs {
  const at::Tensor& q;   // [T, H, c] after norm and rotation
  const at::Tensor& kv;  // [T, c] one shared key = value per token, after norm and rotation
  const std::optional<at::Tensor>& slots;  // [C, c] key = value per slot; present iff ratio > 0
  const std::optional<at::Tensor>&
      indices;             // int32 [T, K'] rows of slots, -1 = none; absent = all visible slots
  const at::Tensor& sink;  // [H] logit per head that takes mass without a value
  const at::Tensor& cu_seqlens;  // int32 [N+1] on the CPU: document starts of the T tokens
};

/// What attention does beyond its definition.
struct AttentionOutput {
  // Both or none: o is rotated back in its last rd channels, as by rope(o, positions, inv_freq,
  // inverse).
  std::optional<at::Tensor> positions = {};  // int64 [T]
  std::optional<at::Tensor> inv_freq = {};   // float32 [rd / 2], rd <= c
  bool slot_mass = false;                    // also return slot_mass
};

/// o [T, H, c], lse_with_sink [T, H], slot_mass [T, K'].
using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Shared-KV attention of every query over its window and slots, with a sink, never across
/// documents.
///   z_j = scale * <q, k_j>,  Z = sum_j exp z_j + exp sink,  o = sum_j (exp z_j / Z) k_j
/// Slot j of a document is visible at position p iff j < (p+1) / ratio. indices must name visible
/// slots, each at most once per row, in any order. Returns o [T, H, c], lse_with_sink [T, H] = log
/// Z (natural log) and slot_mass [T, K'] = mean over heads of exp(z_j - log Z) of the slot that
/// each index names, 0 for -1 (the indexer's teacher; empty [0] when not asked for or without
/// indices), all of q's dtype. Differentiable: o in q, kv, slots, sink; the others are not. Saved:
/// the inputs, o, lse_with_sink: o must not be changed in place. Double backward: error. Throws
/// ShapeError (also for an index that is out of range or not visible and, in checked mode
/// (implementation.h), for one that is named twice), DtypeError. Deterministic: the kernel for any
/// thread count; the reference by blocks of queries in fixed order, gradients of slots in index
/// order. Source: model spec 7; spec 4 2.2.
AttentionResult sparse_attention(const AttentionInputs& inputs,
                                 const AttentionRule& rule,
                                 const AttentionOutput& output = {});

namespace reference {

/// By blocks of queries: one contiguous band of window keys and the slots, gathered by index if
/// there are indices.
AttentionResult sparse_attention_gather(const AttentionInputs& inputs,
                                        const AttentionRule& rule,
                                        const AttentionOutput& output = {});

/// The oracle: one masked [T, H, T + C] softmax of differentiable ATen operations; gradients by
/// autograd. o is not rotated; no slot_mass.
std::tuple<at::Tensor, at::Tensor> sparse_attention_dense(const AttentionInputs& inputs,
                                                          const AttentionRule& rule);

}  // namespace reference

}  // namespace lethe::ops
