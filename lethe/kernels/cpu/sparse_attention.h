#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// What shared-KV attention reads; see lethe/ops/sparse_attention.h. Everything is contiguous.
/// Letters: T tokens, H heads, D channels, C slots, N documents.
/// Query t at position p of its document sees the last min(window, p + 1) tokens up to itself and,
/// with ratio > 0, the slots that `indices` names for it, or without indices the first (p+1)/ratio
/// slots of its document. Indices must be -1 or rows of slots: the kernel does not check them.
struct SparseAttentionInputs {
  int64_t heads, width;       // H, D
  int64_t window, ratio;      // window >= 0; ratio 0: no slots
  float scale;                // of the inner products
  int64_t documents;          // N
  const int32_t* cu_seqlens;  // [N+1] first token of every document, then T
  const int32_t* cu_slots;    // [N+1] first slot of every document, then C; ratio > 0
  const float* q;             // [T, H, D]
  const float* kv;            // [T, D]
  const float* slots;         // [C, D], ratio > 0
  const float* sink;          // [H]
  const int32_t* indices;     // [T, topk] or nullptr
  int64_t topk;               // columns of indices, else 0
  const int64_t* positions;   // [T], with num_pairs > 0
  const float* inv_freq;      // [num_pairs] radians per token
  int64_t num_pairs;          // o is rotated back in its last 2 * num_pairs channels; 0: not
};

/// o [T, H, D]; lse [T, H] = log of the mass of keys and sink, -inf where there is none (o is 0);
/// slot_mass [T, topk] or nullptr: the share of the mass of each named slot, averaged over heads,
/// 0 for -1. Bits do not depend on the threads. scratch: sparse_attention_scratch().floats.
struct SparseAttentionForward {
  Parallel parallel;
  SparseAttentionInputs in;
  float* o;
  float* lse;
  float* slot_mass;
  float* scratch;
};

void sparse_attention_forward(const SparseAttentionForward& a);

/// Gradients given d_o like o; o and lse are the forward's. d_q [T, H, D] and d_sink [H] are
/// written, d_kv [T, D] and d_slots [C, D] (ratio > 0) added to. Every element of d_kv and d_slots
/// is summed by one thread, blocks of queries ascending, keys within a query in the order in which
/// it reads them (spec 2 5.6): bits do not depend on the threads. scratch and key_ids:
/// sparse_attention_scratch() with backward.
struct SparseAttentionBackward {
  Parallel parallel;
  SparseAttentionInputs in;
  const float* o;
  const float* lse;
  const float* d_o;
  float* d_q;
  float* d_kv;
  float* d_slots;
  float* d_sink;
  float* scratch;
  int32_t* key_ids;
};

void sparse_attention_backward(const SparseAttentionBackward& a);

/// Scratch that a call needs; both bounded whatever T and C are.
struct SparseAttentionScratch {
  int64_t floats, key_ids;
};

struct SparseAttentionScratchOf {
  const SparseAttentionInputs& in;
  int threads;
  bool backward;
};

[[nodiscard]] SparseAttentionScratch sparse_attention_scratch(const SparseAttentionScratchOf& a);

}  // namespace lethe::kernels
