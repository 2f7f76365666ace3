#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/base/documents.h"

// Inside lethe/ops only: the loop of the attention-like operators. A block is a run of queries of
// one document; its keys are one contiguous band of tokens and, if there are slots, one contiguous
// run of them or per-query gathered ones. The definitions and the gradients share this.
namespace lethe::ops {

struct QueryBlock {
  int64_t begin;       // first query, row of the packed row
  int64_t size;        // queries
  int64_t position;    // document position of the first query
  int64_t band_begin;  // first row that any query's window holds; the band ends with the last query
  int64_t slot_begin;  // first slot of the document
  int64_t num_slots;   // slots that the last query sees
};

/// Blocks of at most `max_queries` queries, in row order. ratio 0: no slots.
std::vector<QueryBlock> query_blocks(const Documents& documents,
                                     int64_t window,
                                     int64_t ratio,
                                     int64_t max_queries);

/// Queries per block such that a block's temporaries hold about 2^21 elements, in [1, most].
int64_t queries_per_block(int64_t elements_per_query, int64_t most);

/// Rows of `t` of the block's queries.
at::Tensor block_rows(const at::Tensor& t, const QueryBlock& block);

/// int64 [size]: slots that each query sees, (p+1) / ratio.
at::Tensor visible_counts(const QueryBlock& block, int64_t ratio, at::Device device);

/// Some keys of a block.
struct KeyPart {
  at::Tensor rows;    // [m, c] the same for every query, or [size, m, c] gathered per query
  at::Tensor hidden;  // bool [size, m], true where the query does not see the key
  at::Tensor
      row_ids;        // int64 [size*m] rows of the source, -1 = none, when gathered; else undefined
  int64_t begin = 0;  // first row in the source when not gathered
};

/// The band of window keys, out of kv [T, c].
KeyPart window_part(const at::Tensor& kv, const QueryBlock& block, int64_t window);

/// The slots out of [C, c]: those of `indices` [T, K'], or all that the block's last query sees.
KeyPart slot_part(const at::Tensor& slots,
                  const std::optional<at::Tensor>& indices,
                  const QueryBlock& block,
                  int64_t ratio);

/// <x, key>: x [size, h, c] -> [size, h, m]; hidden keys hold arbitrary finite values.
at::Tensor inner(const KeyPart& part, const at::Tensor& x);

/// sum over keys of weight * key: [size, h, m] -> [size, h, c].
at::Tensor weighted_keys(const KeyPart& part, const at::Tensor& weights);

/// destination[key] += sum over queries and h of weight * x, in fixed order. destination is like
/// the source.
void add_to_keys(const KeyPart& part,
                 const at::Tensor& weights,
                 const at::Tensor& x,
                 at::Tensor& destination);

/// x with -inf where hidden [size, m]; x is [size, m] or [size, h, m].
at::Tensor mask_hidden(const at::Tensor& x, const at::Tensor& hidden);

}  // namespace lethe::ops
