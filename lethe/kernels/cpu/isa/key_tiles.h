#pragma once

#include "lethe/kernels/cpu/isa/tile.h"

// Inside cpu/isa/ only: the three inner products of attention over keys that lie anywhere in
// memory. Heads are the lanes, so neither keys nor softmax are ever turned (layout L2 of spec 2
// 5.3). Matrices with heads as columns are cut into panels of kTileColumns (the last may be one
// vector) so that a panel is contiguous.
namespace lethe::kernels::LETHE_ISA {

/// Keys of one register tile: few enough that their row pointers fit the integer registers.
inline constexpr int kKeyRows = kRegisters == 32 ? 8 : 6;

/// c(key, column) = or += sum over k < depth of rows[key][k] * b(k, column).
///   rows  kKeyRows rows;  b  [depth, Vecs * kLanes];  c  row stride c_row
template <int Vecs, bool Accumulate>
LETHE_INLINE void key_products(const float* const* rows,
                               int64_t depth,
                               const float* __restrict b,
                               float* __restrict c,
                               int64_t c_row) {
  const float* row[kKeyRows];
  Vec sum[kKeyRows][Vecs] = {};
#pragma GCC unroll 16
  for (int i = 0; i < kKeyRows; ++i) row[i] = rows[i];
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) right[j] = load(b + (k * Vecs + j) * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kKeyRows; ++i) {
      const Vec left = broadcast(row[i][k]);
#pragma GCC unroll 4
      for (int j = 0; j < Vecs; ++j) sum[i][j] = fma(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kKeyRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) {
      float* place = c + i * c_row + j * kLanes;
      store(place, Accumulate ? load(place) + sum[i][j] : sum[i][j]);
    }
}

/// Weights of keys, one panel of heads: w(key, head) at w[key * w_row + head].
struct KeyWeights {
  const float* const* rows;
  int64_t count;  // keys
  const float* w;
  int64_t w_row;
};

/// c(channel, head) = c * factor(head) + sum over keys of rows[key][first + channel] * w(key,
/// head), Channels x Vecs * kLanes of a contiguous panel; without factor c is not read.
template <int Channels, int Vecs>
LETHE_INLINE void weighted_sum(const KeyWeights& keys,
                               int64_t first,
                               const float* factor,
                               float* __restrict c) {
  Vec sum[Channels][Vecs] = {};
  const float* w = keys.w;
  const float* const* rows = keys.rows;
  const float* const* end = rows + keys.count;
  for (; rows != end; ++rows, w += keys.w_row) {
    const float* row = *rows + first;
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) right[j] = load(w + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Channels; ++i) {
      const Vec left = broadcast(row[i]);
#pragma GCC unroll 4
      for (int j = 0; j < Vecs; ++j) sum[i][j] = fma(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Channels; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) {
      float* place = c + (i * Vecs + j) * kLanes;
      store(place,
            factor == nullptr ? sum[i][j] : fma(load(place), load(factor + j * kLanes), sum[i][j]));
    }
}

/// weighted_sum for the last channels, fewer than kTileRows.
template <int Channels, int Vecs>
LETHE_INLINE void weighted_sum_of(
    int64_t channels, const KeyWeights& keys, int64_t first, const float* factor, float* c) {
  if (channels == Channels) return weighted_sum<Channels, Vecs>(keys, first, factor, c);
  if constexpr (Channels > 1) weighted_sum_of<Channels - 1, Vecs>(channels, keys, first, factor, c);
}

/// Brings the rows of the next keys into L2 while these are summed, some lines with every step.
class RowPrefetch {
 public:
  LETHE_INLINE RowPrefetch(const float* const* rows, int64_t count, int64_t width, int64_t steps)
      : rows_(rows), end_(rows + count), width_(width) {
    const int64_t lines = count * ((width + kLine - 1) / kLine);
    lines_per_step_ = (lines + steps - 1) / steps;
  }

  LETHE_INLINE void step() {
    for (int64_t i = 0; i < lines_per_step_ && rows_ != end_; ++i) {
      __builtin_prefetch(*rows_ + x_, /*write=*/0, /*locality: L2=*/2);
      x_ += kLine;
      if (x_ < width_) continue;
      x_ = 0;
      ++rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 16;
  const float* const* rows_;
  const float* const* end_;
  int64_t width_, lines_per_step_, x_ = 0;
};

/// Steps that weighted_sums makes for one panel.
LETHE_INLINE int64_t weighted_sums_steps(int64_t width) {
  return (width + kTileRows - 1) / kTileRows;
}

/// weighted_sum over all channels: c is a whole panel [width, Vecs * kLanes].
template <int Vecs>
LETHE_INLINE void weighted_sums(
    const KeyWeights& keys, int64_t width, const float* factor, float* c, RowPrefetch& next) {
  int64_t x = 0;
  for (; x + kTileRows <= width; x += kTileRows) {
    next.step();
    weighted_sum<kTileRows, Vecs>(keys, x, factor, c + x * Vecs * kLanes);
  }
  weighted_sum_of<kTileRows - 1, Vecs>(width - x, keys, x, factor, c + x * Vecs * kLanes);
}

/// places[key][column] += sum over k < depth of a[key * a_row + k] * b(k, column): kKeyRows rows
/// anywhere in memory, b [depth, kTileColumns].
LETHE_INLINE void add_to_rows(const float* __restrict a,
                              int64_t a_row,
                              int64_t depth,
                              const float* __restrict b,
                              float* const* places) {
  Vec sum[kKeyRows][kTileVecs] = {};
#pragma GCC unroll 16
  for (int i = 0; i < kKeyRows; ++i) __builtin_prefetch(places[i], 1);
  for (int64_t k = 0; k < depth; ++k, b += kTileColumns) {
    Vec right[kTileVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVecs; ++j) right[j] = load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kKeyRows; ++i) {
      const Vec left = broadcast(a[i * a_row + k]);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVecs; ++j) sum[i][j] = fma(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kKeyRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVecs; ++j) {
      float* place = places[i] + j * kLanes;
      store(place, load(place) + sum[i][j]);
    }
}

}  // namespace lethe::kernels::LETHE_ISA
