#pragma once

#include "lethe/kernels/cpu/isa/tile.h"
#include "lethe/kernels/cpu/isa/transpose.h"

// Inside cpu/isa/ only: products whose left operand is packed or a weight matrix and whose right
// operand is a panel of kTileColumns tokens: element (k, token) at panel[k * kTileColumns + token].
namespace lethe::kernels::LETHE_ISA {

/// Sums run over this many k in registers, and are then added: a panel of it stays in the first
/// cache, and a long sum loses less.
inline constexpr int64_t kDepth = 128;

/// Groups of kTileRows rows, `group` floats apart. Element (row, k) of a group lies at
/// p[row * row_step + k]; with row_step 1 the group is packed: p[row + k * kTileRows].
struct Left {
  const float* p;
  int64_t row_step, group;
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

/// `count` elements of a row, as a vector.
LETHE_INLINE Vec elements(const float* from, int64_t count) {
  return count == kLanes ? load(from) : load_some(from, count);
}

LETHE_INLINE Vec elements(const uint16_t* from, int64_t count) {
  float wide[kLanes] = {};
  widen(from, count, wide);
  return load(wide);
}

/// Floats of the buffer that rows_of and columns_of need at most, and packed operands of `depth`.
LETHE_INLINE int64_t packed_floats(int64_t depth, int64_t rows) {
  return (round_up(rows, kTileRows) / kTileRows) * (depth * kTileRows + kLanes);
}

/// A left operand with kTileRows rows side by side: one stream through memory.
inline Left packed(const float* buffer, int64_t depth) {
  return {buffer, 1, depth * kTileRows + kLanes};
}

/// One group of `rows` <= kTileRows rows, packed.
template <class Element>
inline void pack_group(
    const Element* from, int64_t width, int64_t rows, int64_t columns, float* out) {
  constexpr int kParts = (kTileRows + kLanes - 1) / kLanes;
  for (int64_t k = 0; k < columns; k += kLanes) {
    const int64_t some = columns - k < kLanes ? columns - k : kLanes;
    Vec block[kParts][kLanes];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const int row = part * kLanes + i;
        block[part][i] = row < rows ? elements(from + row * width + k, some) : Vec{};
      }
      transpose_registers(block[part]);
    }
    // Each store overwrites what the one before wrote behind its kTileRows.
    for (int64_t j = 0; j < some; ++j)
      for (int part = 0; part < kParts; ++part)
        store(out + (k + j) * kTileRows + part * kLanes, block[part][j]);
  }
}

template <class Element>
inline Left pack_rows(const Element* from, int64_t width, const Block& block, float* buffer) {
  const Left left = packed(buffer, block.columns);
  for (int64_t row = 0; row < block.rows; row += kTileRows) {
    const int64_t left_rows = block.rows - row;
    pack_group(from + row * width,
               width,
               left_rows < kTileRows ? left_rows : kTileRows,
               block.columns,
               buffer + row / kTileRows * left.group);
  }
  return left;
}

/// The block as left operand: its rows are the rows.
inline Left pack_rows_of(const WeightMatrix& m, const Block& block, float* buffer) {
  const int64_t begin = block.row * m.width + block.column;
  return m.wide == nullptr ? pack_rows(m.narrow + begin, m.width, block, buffer)
                           : pack_rows(m.wide + begin, m.width, block, buffer);
}

/// The same for `panels` panels of tokens: few of them do not repay the copy of a float32 block,
/// which is read where it lies.
inline Left rows_of(const WeightMatrix& m, const Block& block, int64_t panels, float* buffer) {
  constexpr int64_t kWorthPacking = 3;
  if (m.wide == nullptr || panels >= kWorthPacking) return pack_rows_of(m, block, buffer);
  return {m.wide + block.row * m.width + block.column, m.width, kTileRows * m.width};
}

/// The transposed block as left operand: its columns are the rows. Always copied.
inline Left columns_of(const WeightMatrix& m, const Block& block, float* buffer) {
  constexpr int64_t kMost = 256;  // columns, with what whole groups and vectors read behind them
  float line[kMost] = {};
  const Left left = packed(buffer, block.rows);
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
        store(buffer + g * left.group + k * kTileRows + i, load(from + g * kTileRows + i));
  }
  return left;
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

/// The first `columns` columns of the tile, c = sum or c += sum.
template <int Rows>
LETHE_INLINE void store_columns(
    const Vec (&sum)[Rows][kTileVecs], float* c, int64_t c_row, int64_t columns, bool add) {
  if (columns >= kTileColumns)
    return add ? store_sums<Rows, true>(sum, c, c_row) : store_sums<Rows, false>(sum, c, c_row);
  float part[Rows * kTileColumns];
  store_sums<Rows, false>(sum, part, kTileColumns);
  for (int64_t i = 0; i < Rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * c_row + j] = part[i * kTileColumns + j] + (add ? c[i * c_row + j] : 0);
}

/// sum += one group of rows that lie apart.
template <int Rows>
LETHE_INLINE void sum_rows(int64_t depth,
                           const Left& a,
                           const float* panel,
                           Vec (&sum)[Rows][kTileVecs]) {
  // Rows that lie apart are too short for the hardware to foresee: the next group is asked for.
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t k = 0; k < depth; k += kLine) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) __builtin_prefetch(a.p + a.group + i * a.row_step + k);
    tile_sums<Rows, kTileVecs>(depth - k < kLine ? depth - k : kLine,
                               a.p + k,
                               a.row_step,
                               1,
                               panel + k * kTileColumns,
                               kTileColumns,
                               sum);
  }
}

/// The tile of one group of at most Rows rows.
template <bool Add, int Rows = kTileRows>
inline void multiply_group(
    int64_t rows, int64_t depth, const Left& a, const float* panel, float* c) {
  if constexpr (Rows > 1)
    if (rows < Rows) return multiply_group<Add, Rows - 1>(rows, depth, a, panel, c);
  Vec sum[Rows][kTileVecs] = {};
  if (a.row_step == 1)
    tile_sums<Rows, kTileVecs>(depth, a.p, 1, kTileRows, panel, kTileColumns, sum);
  else
    sum_rows<Rows>(depth, a, panel, sum);
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
