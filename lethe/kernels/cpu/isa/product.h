#pragma once

#include "lethe/kernels/cpu/isa/tile.h"

// Inside cpu/isa/ only: products whose left operand is a weight matrix, read where it lies, and
// whose right operand is a panel of kTileColumns tokens: element (k, token) at
// panel[k * kTileColumns + token].
namespace lethe::kernels::LETHE_ISA {

/// Sums run over this many k in registers, and are then added: a panel of it stays in the first
/// cache, and a long sum loses less.
inline constexpr int64_t kDepth = 256;

/// Element (row, k) at p[row / kTileRows * group + row % kTileRows * row_step + k * k_step].
struct Left {
  const float* p;
  int64_t row_step, k_step, group;
};

/// A row-major matrix of float32 or of the bits of bfloat16.
struct WeightMatrix {
  const float* wide;
  const uint16_t* narrow;
  int64_t width;  // elements in a row
};

/// A block of a matrix.
struct Block {
  int64_t row, rows, column, columns;
};

LETHE_INLINE void widen(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

/// Floats of the buffer that rows_of needs at most, and columns_of.
LETHE_INLINE int64_t rows_floats(int64_t rows) {
  return rows * kDepth;
}

LETHE_INLINE int64_t columns_floats(int64_t depth, int64_t columns) {
  return (round_up(columns, kTileRows) / kTileRows) * (depth * kTileRows + kLanes);
}

/// The block as left operand: its rows are the rows. float32 is not copied.
inline Left rows_of(const WeightMatrix& m, const Block& block, float* buffer) {
  const int64_t begin = block.row * m.width + block.column;
  if (m.wide != nullptr) return {m.wide + begin, m.width, 1, kTileRows * m.width};
  for (int64_t i = 0; i < block.rows; ++i)
    widen(m.narrow + begin + i * m.width, block.columns, buffer + i * block.columns);
  return {buffer, block.columns, 1, kTileRows * block.columns};
}

/// What columns_of left in a buffer, for a block of `depth` rows.
inline Left packed_columns(const float* buffer, int64_t depth) {
  return {buffer, 1, kTileRows, depth * kTileRows + kLanes};
}

/// The transposed block as left operand: its columns are the rows. Always copied, kTileRows columns
/// side by side.
inline Left columns_of(const WeightMatrix& m, const Block& block, float* buffer) {
  constexpr int64_t kMost = 256;  // columns, with what whole groups and vectors read behind them
  float line[kMost] = {};
  const Left packed = packed_columns(buffer, block.rows);
  for (int64_t k = 0; k < block.rows; ++k) {
    const int64_t begin = (block.row + k) * m.width + block.column;
    const float* from = line;
    if (m.wide == nullptr)
      widen(m.narrow + begin, block.columns, line);
    else if (block.column + block.columns + kTileRows + kLanes <= m.width)
      from = m.wide + begin;
    else
      std::memcpy(line, m.wide + begin, static_cast<size_t>(block.columns) * sizeof(float));
    // Whole vectors, each overwriting what the one before wrote behind its kTileRows.
    for (int64_t g = 0; g * kTileRows < block.columns; ++g)
      for (int64_t i = 0; i < kTileRows; i += kLanes)
        store(buffer + g * packed.group + k * kTileRows + i, load(from + g * kTileRows + i));
  }
  return packed;
}

template <int Rows, bool Add>
LETHE_INLINE void store_sums(const Vec (&sum)[Rows][kTileVecs], float* c, int64_t c_row) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kTileVecs; ++j) {
      float* to = c + i * c_row + j * kLanes;
      store(to, Add ? load(to) + sum[i][j] : sum[i][j]);
    }
}

/// The tiles of one group of at most Rows rows.
template <bool Add, int Rows = kTileRows>
inline void multiply_group(
    int64_t rows, int64_t depth, const Left& a, const float* panel, float* c) {
  if constexpr (Rows > 1)
    if (rows < Rows) return multiply_group<Add, Rows - 1>(rows, depth, a, panel, c);
  Vec sum[Rows][kTileVecs] = {};
  // Rows that lie apart are too short for the hardware to foresee: the next group is asked for.
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t k = 0; k < depth; k += kLine) {
    if (a.k_step == 1)
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) __builtin_prefetch(a.p + a.group + i * a.row_step + k);
    tile_sums<Rows, kTileVecs>(depth - k < kLine ? depth - k : kLine,
                               a.p + k * a.k_step,
                               a.row_step,
                               a.k_step,
                               panel + k * kTileColumns,
                               kTileColumns,
                               sum);
  }
  store_sums<Rows, Add>(sum, c, kTileColumns);
}

/// c [rows][kTileColumns] = a panel, or += it when `add`: over `depth` <= kDepth steps of k.
inline void multiply(int64_t rows, int64_t depth, Left a, const float* panel, float* c, bool add) {
  for (int64_t row = 0; row < rows; row += kTileRows) {
    const int64_t count = rows - row < kTileRows ? rows - row : kTileRows;
    if (add)
      multiply_group<true>(count, depth, a, panel, c + row * kTileColumns);
    else
      multiply_group<false>(count, depth, a, panel, c + row * kTileColumns);
    a.p += a.group;
  }
}

}  // namespace lethe::kernels::LETHE_ISA
