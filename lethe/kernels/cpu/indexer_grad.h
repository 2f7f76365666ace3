#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/indexer_arrays.h"
#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// The slots of every query that something is computed for, and the gradients that come of it.
struct IndexerGradients {
  Parallel parallel;
  PackedSlots rows;
  IndexerArrays in;
  int64_t width;           // columns
  const int32_t* indices;  // [T, width]: rows of k that the query sees or -1, in any order, each at
                           // most once; or nullptr: column = slot counted from the document's first
  float* d_q;              // [T, nI, dI]
  float* d_k;              // [C, dI]
  float* d_w;              // [T, nI]
  float* scratch;          // indexer_grad_scratch_floats(...) floats
};

/// Scores of given slots: values [T, width], -inf at -1. Reads g.parallel, rows, in, width, indices
/// and scratch; the gradients may be null.
struct IndexerValues {
  IndexerGradients g;
  float* values;
};

void indexer_values(const IndexerValues& a);

/// Gradients of all inputs for d_scores [T, width]; what stands at -1 or at a slot that the query
/// does not see is ignored. With S = <q,k>: dw = sum_j dI relu(S), dq = sum_j dI w [S>0] k, dk =
/// sum_{t,h} dI w [S>0] q. Every element of d_k is summed in the order of the tokens by one task
/// that owns its column: the bits do not know the threads. Source: spec 2 5.6; model spec 8.1.
struct IndexerBackward {
  IndexerGradients g;
  const float* d_scores;
};

void indexer_backward(const IndexerBackward& a);

/// For both, and what indexer_kl needs of it.
[[nodiscard]] int64_t indexer_grad_scratch_floats(const IndexerGradients& g);

// What the variants of these kernels agree on.

/// Keys of one query that are in work at a time: all of a list, else so many of the visible ones.
inline constexpr int64_t kDenseKeys = 128;
[[nodiscard]] int64_t keys_per_tile(const IndexerGradients& g);

/// Heads as lanes: from one key's row of products to the next, whole vectors for every instruction
/// set; and the floats of one query [heads, dim] as panels of heads.
[[nodiscard]] int64_t head_stride(int64_t heads);
[[nodiscard]] int64_t head_panel_floats(int64_t heads, int64_t dim);

/// Queries between two barriers: enough work for every thread, products of bounded size.
[[nodiscard]] int64_t queries_per_step(const IndexerGradients& g);

}  // namespace lethe::kernels
