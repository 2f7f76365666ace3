#pragma once

#include "lethe/kernels/cpu/indexer_arrays.h"
#include "lethe/kernels/cpu/isa/lanes.h"

// Inside cpu/isa/ only: the queries of a packed row, some at a time.
namespace lethe::kernels::LETHE_ISA {

/// Neighbouring queries of one document.
struct QueryRun {
  int64_t begin, size;  // tokens of the packed row
  int64_t position;     // of the first one in its document
  int64_t slot_begin;   // first slot of the document
  int64_t ratio;

  /// Slots that query `begin + i` sees; i ascending, never fewer.
  [[nodiscard]] int64_t visible(int64_t i) const { return (position + i + 1) / ratio; }
};

LETHE_INLINE int64_t tokens_of(const PackedSlots& rows) {
  return rows.cu_seqlens[rows.documents];
}

/// The document that holds this token.
LETHE_INLINE int64_t document_of(const PackedSlots& rows, int64_t token) {
  int64_t low = 0, high = rows.documents;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (rows.cu_seqlens[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// f(run) for the documents' parts of the tokens [begin, end).
template <class F>
LETHE_INLINE void for_runs(const PackedSlots& rows, int64_t begin, int64_t end, F&& f) {
  for (int64_t document = document_of(rows, begin); begin < end; ++document) {
    const int64_t next = least(end, rows.cu_seqlens[document + 1]);
    f(QueryRun{begin,
               next - begin,
               begin - rows.cu_seqlens[document],
               rows.cu_slots[document],
               rows.ratio});
    begin = next;
  }
}

/// The run of one token.
LETHE_INLINE QueryRun run_of(const PackedSlots& rows, int64_t token) {
  const int64_t document = document_of(rows, token);
  return {token, 1, token - rows.cu_seqlens[document], rows.cu_slots[document], rows.ratio};
}

}  // namespace lethe::kernels::LETHE_ISA
