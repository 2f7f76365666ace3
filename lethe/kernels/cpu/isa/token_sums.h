#pragma once

#include "lethe/kernels/cpu/isa/product.h"

// Inside cpu/isa/ only: gradients of weights, whose sums run over the tokens of a tile.
namespace lethe::kernels::LETHE_ISA {

/// c[row][column] = or += sum over t < tokens, ascending, of left[row][t] right[t][column].
///   left   [panel of tokens][rows][kTileColumns]
///   right  [panel of columns][right_rows][kTileColumns], readable to whole panels
///   c      rows c_row apart
struct TokenSums {
  int64_t tokens, rows, columns;
  const float* left;
  const float* right;
  int64_t right_rows;
  float* c;
  int64_t c_row;
  bool add;
};

template <int Rows = kTileRows>
inline void sum_tokens_tile(const TokenSums& a, int64_t rows, int64_t row, int64_t column) {
  if constexpr (Rows > 1)
    if (rows < Rows) return sum_tokens_tile<Rows - 1>(a, rows, row, column);
  Vec sum[Rows][kTileVecs] = {};
  float* c = a.c + row * a.c_row + column;
  if (a.add)
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) __builtin_prefetch(c + i * a.c_row);
  const float *left = a.left + row * kTileColumns, *right = a.right + column * a.right_rows;
  for (int64_t t = 0; t < a.tokens; t += kTileColumns) {
    const int64_t count = a.tokens - t < kTileColumns ? a.tokens - t : kTileColumns;
    tile_sums<Rows, kTileVecs>(
        count, left + t * a.rows, kTileColumns, 1, right + t * kTileColumns, kTileColumns, sum);
  }
  store_columns<Rows>(sum, c, a.c_row, a.columns - column, a.add);
}

inline void sum_tokens(const TokenSums& a) {
  // So many rows that they and a panel of the right operand stay in the first cache.
  constexpr int64_t kRows = 8 * kTileRows;
  for (int64_t block = 0; block < a.rows; block += kRows) {
    const int64_t end = a.rows - block < kRows ? a.rows : block + kRows;
    for (int64_t column = 0; column < a.columns; column += kTileColumns)
      for (int64_t row = block; row < end; row += kTileRows)
        sum_tokens_tile(a, end - row < kTileRows ? end - row : kTileRows, row, column);
  }
}

}  // namespace lethe::kernels::LETHE_ISA
