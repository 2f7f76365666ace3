#pragma once

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/tile.h"

// Inside cpu/isa/ only: products of the gate's three matrices, cut into register tiles. The right
// factor lies in panels of kTileColumns columns, [depth][kTileColumns] each, zeros behind its end.
namespace lethe::kernels::LETHE_ISA {
namespace {

/// Element (row, k) of the left factor at a[row * a_row + k * a_k]; panel as above.
struct TileInput {
  int64_t depth;
  const float* a;
  int64_t a_row, a_k;
  const float* panel;
  const float* ahead = nullptr;  // fetched meanwhile, see tile.h
  int64_t ahead_k = 0;
};

/// rows <= kTileRows and columns <= kTileColumns of a matrix with c_row floats between rows.
struct TileOutput {
  float* c;
  int64_t c_row, rows, columns;
  bool add;  // to what is there
};

template <int Vecs, bool Add, bool Ahead, int Rows = kTileRows>
void tile_rows(const TileInput& in, const TileOutput& out) {
  if constexpr (Rows > 1) {
    if (out.rows < Rows) return tile_rows<Vecs, Add, Ahead, Rows - 1>(in, out);
  }
  const float* panel = in.panel;
  float* c = out.c;
  int64_t left = out.columns;
  do {  // one panel but for a wide product, which has whole ones only
    tile<Rows, Vecs, Add, Ahead>(
        in.depth, in.a, in.a_row, in.a_k, panel, kTileColumns, c, out.c_row, in.ahead, in.ahead_k);
    panel += in.depth * kTileColumns;
    c += kTileColumns;
    left -= kTileColumns;
  } while (left > 0);
}

template <int Vecs>
void tile_vecs(const TileInput& in, const TileOutput& out) {
  if (in.ahead == nullptr)
    return out.add ? tile_rows<Vecs, true, false>(in, out) : tile_rows<Vecs, false, false>(in, out);
  out.add ? tile_rows<Vecs, true, true>(in, out) : tile_rows<Vecs, false, true>(in, out);
}

/// out = or += the product. out.columns: at most those of one panel, or those of several whole
/// panels that follow one another.
void put_product(const TileInput& in, const TileOutput& out) {
  if (out.columns == kLanes) return tile_vecs<1>(in, out);
  if (out.columns % kTileColumns == 0) return tile_vecs<kTileVecs>(in, out);
  float sums[kTileRows * kTileColumns];
  tile_vecs<kTileVecs>(in, {sums, kTileColumns, out.rows, kTileColumns, false});
  for (int64_t row = 0; row < out.rows; ++row) {
    float* c = out.c + row * out.c_row;
    for_vectors(out.columns, [&](int64_t i, int64_t count) {
      const Vec v = get(sums + row * kTileColumns + i, count);
      put(c + i, out.add ? get(c + i, count) + v : v, count);
    });
  }
}

constexpr int64_t kTaskRows = kTileRows * (96 / kTileRows);  // tokens of a task

LETHE_INLINE int64_t tasks_of(int64_t count, int64_t step) {
  return (count + step - 1) / step;
}

}  // namespace
}  // namespace lethe::kernels::LETHE_ISA
