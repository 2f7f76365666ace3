#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/ops/indexer.h"
#include "lethe/ops/query_blocks.h"

// Inside lethe/ops only: the scorer of one block of queries, shared by the indexer's operators and
// the KL loss.
namespace lethe::ops {

/// Checks the tensors against one another and the row.
Documents check_indexer(const char* op,
                        const IndexerInputs& inputs,
                        const at::Tensor& cu_seqlens,
                        int64_t ratio);

/// Slots of every query as a row of ids: int32 [T, K']. Does not read them.
void check_given_shape(const at::Tensor& given, int64_t tokens);

/// Every row holds ascending slots that its query sees, then -1. Reads the values, once.
void check_given(const at::Tensor& given, const Documents& documents, int64_t ratio);

/// Queries per block such that their [queries, nI, slots] products stay within the budget.
int64_t index_block_size(const Documents& documents, const IndexerInputs& inputs, int64_t ratio);

/// Blocks of that size.
std::vector<QueryBlock> index_blocks(const Documents& documents,
                                     const IndexerInputs& inputs,
                                     int64_t ratio);

/// The block's scores over the keys of `part`, [size, m], -inf where hidden.
at::Tensor block_scores(const IndexerInputs& inputs, const QueryBlock& block, const KeyPart& part);

/// Gradients of all three inputs, zeros at first, filled block by block.
struct IndexerGradients {
  explicit IndexerGradients(const IndexerInputs& inputs);

  /// Adds those of one block, d_scores [size, m]; hidden entries of d_scores are ignored.
  void add(const IndexerInputs& inputs,
           const QueryBlock& block,
           const KeyPart& part,
           const at::Tensor& d_scores);

  at::Tensor q, k, w;
};

}  // namespace lethe::ops
