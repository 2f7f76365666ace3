#pragma once

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/tile.h"
#include "lethe/kernels/cpu/isa/transpose.h"

// Inside cpu/isa/ only: the right operand of a register tile, kTileColumns columns side by side:
// element (k, column) of a panel at panel[k * kTileColumns + column].
namespace lethe::kernels::LETHE_ISA {

/// kLanes columns of a panel from as many rows of `depth` elements, zeros for nullptr: element k of
/// row t becomes out[k * kTileColumns + t].
inline void gather_lanes(const float* const (&rows)[kLanes], int64_t depth, float* out) {
  for_vectors(depth, [&](int64_t i, int64_t count) {
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int t = 0; t < kLanes; ++t) v[t] = rows[t] == nullptr ? Vec{} : get(rows[t] + i, count);
    transpose_registers(v);
    if (count == kLanes) {
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(out + (i + j) * kTileColumns, v[j]);
    } else {
      for (int64_t j = 0; j < count; ++j) store(out + (i + j) * kTileColumns, v[j]);
    }
  });
}

/// One line of a panel: the first of `columns` elements, zeros behind them.
LETHE_INLINE void copy_line(const float* from, int64_t columns, float* out) {
  for (int64_t i = 0; i < kTileColumns; i += kLanes) {
    const int64_t left = columns - i;
    store(out + i, left >= kLanes ? load(from + i) : load_some(from + i, left > 0 ? left : 0));
  }
}

/// A panel from `columns` <= kTileColumns columns of a row-major matrix, `stride` between its rows,
/// zeros behind them.
inline void copy_panel(
    const float* from, int64_t stride, int64_t depth, int64_t columns, float* out) {
  for (int64_t k = 0; k < depth; ++k) copy_line(from + k * stride, columns, out + k * kTileColumns);
}

}  // namespace lethe::kernels::LETHE_ISA
