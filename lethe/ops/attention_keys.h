#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/ops/query_blocks.h"
#include "lethe/ops/sparse_attention.h"

// Inside lethe/ops only: all keys of a block of attention queries, window then slots, as one axis
// of n keys.
namespace lethe::ops {

/// Checks the tensors against one another, the row and the rule; not the values of the indices.
Documents check_attention(const char* op, const AttentionInputs& inputs, const AttentionRule& rule);

/// positions and inv_freq belong to the inputs, or both are absent.
void check_rotation(const char* op, const AttentionInputs& inputs, const AttentionOutput& output);

/// Every index is -1 or a slot that its query sees and, in checked mode, named once. Reads the
/// values, once.
void check_indices(const char* op,
                   const AttentionInputs& inputs,
                   const Documents& documents,
                   int64_t ratio);

/// Uninitialised slot_mass: [T, K'] where it is asked for and there are indices, else [0].
at::Tensor empty_slot_mass(const AttentionInputs& inputs, const AttentionOutput& output);

/// Queries per block such that a block's temporaries stay within the budget.
int64_t attention_block_size(const Documents& documents,
                             const AttentionInputs& inputs,
                             const AttentionRule& rule);

/// Blocks of that size.
std::vector<QueryBlock> attention_blocks(const Documents& documents,
                                         const AttentionInputs& inputs,
                                         const AttentionRule& rule);

struct AttentionKeys {
  AttentionKeys(const AttentionInputs& inputs, const AttentionRule& rule, const QueryBlock& block);

  /// <x, key>: [size, H, c] -> [size, H, n].
  [[nodiscard]] at::Tensor products(const at::Tensor& x) const;

  /// scale * <q, key>, -inf where hidden.
  [[nodiscard]] at::Tensor logits(const at::Tensor& q, double scale) const;

  /// sum over keys of weight * key: [size, H, n] -> [size, H, c].
  [[nodiscard]] at::Tensor weighted(const at::Tensor& weights) const;

  /// d_kv, d_slots += sum over queries and heads of weight * x, in fixed order.
  void add_to_sources(const at::Tensor& weights,
                      const at::Tensor& x,
                      at::Tensor& d_kv,
                      at::Tensor& d_slots) const;

  std::vector<KeyPart> parts;  // the window's, then the slots' if any is visible
};

/// log(sum exp logits + exp sink): [size, H, n], [H] -> [size, H].
at::Tensor log_mass(const at::Tensor& logits, const at::Tensor& sink);

}  // namespace lethe::ops
