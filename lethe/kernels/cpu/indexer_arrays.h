#pragma once

#include <cstdint>

namespace lethe::kernels {

/// Documents of a packed row and their slots. Document d holds the tokens [cu_seqlens[d],
/// cu_seqlens[d+1]) and the slots [cu_slots[d], cu_slots[d+1]), cu_seqlens and cu_slots int32
/// [documents + 1]. The query at position p of its document sees its first (p+1) / ratio slots.
struct PackedSlots {
  int64_t documents;
  const int32_t* cu_seqlens;
  const int32_t* cu_slots;
  int64_t ratio;  // tokens per slot, >= 2
};

/// What the indexer scores: I[t,j] = sum_h w[t,h] * relu(<q[t,h], k[j]>); see lethe/ops/indexer.h.
struct IndexerArrays {
  int64_t heads, dim;  // nI, dI, both >= 1
  const float* q;      // [T, nI, dI] contiguous
  const float* k;      // [C, dI] contiguous, one row per slot
  const float* w;      // [T, nI] contiguous
};

}  // namespace lethe::kernels
