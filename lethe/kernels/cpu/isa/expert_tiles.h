#pragma once

#include "lethe/kernels/cpu/experts.h"
#include "lethe/kernels/cpu/isa/panels.h"
#include "lethe/kernels/cpu/isa/product.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/slices.h"
#include "lethe/kernels/cpu/isa/transpose.h"

// Inside cpu/isa/ only: what forward and backward of the experts share. Rows are sorted by expert
// and cut into tiles; a window of tiles is taken at a time. First each tile is a task, which leaves
// its activations in the window; then each task owns some columns of the outputs and walks the
// tiles of the window in ascending order. So every output element is summed by one task at a time,
// in an order that knows neither threads nor windows.
namespace lethe::kernels::LETHE_ISA {

static_assert(kExpertTile % kTileColumns == 0);

/// Inner channels between two activations: whole vectors, nearly whole register tiles.
inline constexpr int64_t kChunk = kLanes == 16 ? 64 : 48;
static_assert(kChunk % kTileColumns == 0);

/// f(first, count) for the chunks of the inner channels.
template <class F>
LETHE_INLINE void for_chunks(int64_t inner, F&& f) {
  for (int64_t i = 0; i < inner; i += kChunk) f(i, inner - i < kChunk ? inner - i : kChunk);
}

struct ExpertTile {
  int64_t expert, begin, rows;
  bool first;  // of its expert
};

inline ExpertTile tile_at(const ExpertRoutes& routes, int64_t tile) {
  int64_t low = 0, high = routes.experts;  // tile_begins[low] <= tile < tile_begins[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (routes.tile_begins[middle] <= tile ? low : high) = middle;
  }
  const int64_t begin = routes.begins[low] + (tile - routes.tile_begins[low]) * kExpertTile;
  const int64_t left = routes.begins[low + 1] - begin;
  return {low, begin, left < kExpertTile ? left : kExpertTile, tile == routes.tile_begins[low]};
}

LETHE_INLINE int64_t route_of(const ExpertRoutes& routes, int64_t row) {
  return routes.order == nullptr ? row : routes.order[row];
}

LETHE_INLINE int64_t token_of(const ExpertRoutes& routes, int64_t row) {
  return routes.order == nullptr ? row : routes.order[row] / routes.choices;
}

LETHE_INLINE int64_t panels_of(const ExpertTile& tile) {
  return (tile.rows + kTileColumns - 1) / kTileColumns;
}

/// The route weights of the tile's rows, 0 where no row is.
inline void read_weights(const ExpertRoutes& routes,
                         const ExpertTile& tile,
                         const float* weights,
                         float (&out)[kExpertTile]) {
  for (int64_t t = 0; t < kExpertTile; ++t) {
    const bool real = t < tile.rows;
    out[t] = !real ? 0 : weights == nullptr ? 1 : weights[route_of(routes, tile.begin + t)];
  }
}

/// The window's tiles, given `floats` of memory for each: a few MB for each thread.
inline int64_t window_tiles(int64_t floats, int threads) {
  constexpr int64_t kFewest = 4, kMost = 16, kFloats = 1 << 20;
  const int64_t fit = kFloats / (floats > 0 ? floats : 1);
  return threads * (fit < kFewest ? kFewest : fit > kMost ? kMost : fit);
}

/// The matrix of one expert.
LETHE_INLINE WeightMatrix matrix_of(const ExpertMatrices& all,
                                    int64_t expert,
                                    int64_t rows,
                                    int64_t width) {
  const int64_t begin = expert * rows * width;
  return {all.wide == nullptr ? nullptr : all.wide + begin,
          all.narrow == nullptr ? nullptr : all.narrow + begin,
          width};
}

/// Columns [begin, begin + columns) of a matrix of `width` columns.
template <class Float>
struct Columns {
  Float* data;
  int64_t width, begin, columns;

  LETHE_INLINE Float* row(int64_t i) const { return data + i * width + begin; }
};

/// Columns of the tile's rows as panels: out [panel][columns][kTileColumns], 0 where no row is. Row
/// r of the tile is row row_of(r) of the matrix.
template <class RowOf>
inline void gather_rows(const ExpertTile& tile,
                        const Columns<const float>& from,
                        RowOf&& row_of,
                        float* out) {
  for (int64_t row = 0; row < panels_of(tile) * kTileColumns; row += kLanes) {
    const float* rows[kLanes];
    for (int64_t t = 0; t < kLanes; ++t)
      rows[t] = row + t < tile.rows ? from.row(row_of(row + t)) : nullptr;
    float* panel = out + row / kTileColumns * from.columns * kTileColumns;
    gather_lanes(rows, from.columns, panel + row % kTileColumns);
  }
}

/// The same of the rows' tokens: from [T, width].
inline void gather_tokens(const ExpertRoutes& routes,
                          const ExpertTile& tile,
                          const Columns<const float>& from,
                          float* out) {
  gather_rows(
      tile, from, [&](int64_t r) { return token_of(routes, tile.begin + r); }, out);
}

/// Up to kLanes rows, columns [0, columns): = or += the turned lanes of a panel.
template <bool Add>
LETHE_INLINE void scatter_lanes(const float* panel,
                                int64_t columns,
                                float* const (&rows)[kLanes],
                                int64_t lanes) {
  for_vectors(columns, [&](int64_t i, int64_t count) {
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j)
      v[j] = j < count ? load(panel + (i + j) * kTileColumns) : Vec{};
    transpose_registers(v);
    if (count == kLanes && lanes == kLanes) {
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane)
        store(rows[lane] + i, Add ? load(rows[lane] + i) + v[lane] : v[lane]);
      return;
    }
    for (int64_t lane = 0; lane < lanes; ++lane)
      put(rows[lane] + i, Add ? get(rows[lane] + i, count) + v[lane] : v[lane], count);
  });
}

/// Columns of the matrix's rows row_of(r) = or += panels [panel][columns][kTileColumns], for the
/// rows r of the tile.
template <bool Add, class RowOf>
inline void scatter_rows(const ExpertTile& tile,
                         const float* panels,
                         const Columns<float>& to,
                         RowOf&& row_of) {
  for (int64_t row = 0; row < tile.rows; row += kLanes) {
    const int64_t left = tile.rows - row, lanes = left < kLanes ? left : kLanes;
    float* rows[kLanes];
    for (int64_t lane = 0; lane < lanes; ++lane) rows[lane] = to.row(row_of(row + lane));
    const float* panel = panels + row / kTileColumns * to.columns * kTileColumns;
    scatter_lanes<Add>(panel + row % kTileColumns, to.columns, rows, lanes);
  }
}

/// to[token of the row] += panels, as above; to [T, width].
inline void add_to_tokens(const ExpertRoutes& routes,
                          const ExpertTile& tile,
                          const float* panels,
                          const Columns<float>& to) {
  scatter_rows<true>(tile, panels, to, [&](int64_t r) { return token_of(routes, tile.begin + r); });
}

/// out [panel][rows][kTileColumns] = some rows of a left operand of K columns times the panels.
struct PanelProduct {
  int64_t rows, length;  // length: K
  const float* panels;   // [panel][K][kTileColumns]
  float* out;
};

/// Adds the part of k .. k + depth to out, or writes it where k is 0.
inline void multiply_panels(
    const ExpertTile& tile, const Left& left, int64_t k, int64_t depth, const PanelProduct& a) {
  for (int64_t p = 0; p < panels_of(tile); ++p)
    multiply(a.rows,
             depth,
             left,
             a.panels + (p * a.length + k) * kTileColumns,
             a.out + p * a.rows * kTileColumns,
             k > 0);
}

/// f(k, depth) for the blocks of kDepth.
template <class F>
LETHE_INLINE void for_depths(int64_t length, F&& f) {
  for (int64_t k = 0; k < length; k += kDepth) f(k, length - k < kDepth ? length - k : kDepth);
}

/// The product with rows row .. row + a.rows of m; buffer holds packed_floats(kDepth, a.rows).
inline void multiply_rows(const ExpertTile& tile,
                          const WeightMatrix& m,
                          int64_t row,
                          const PanelProduct& a,
                          float* buffer) {
  for_depths(a.length, [&](int64_t k, int64_t depth) {
    multiply_panels(
        tile, rows_of(m, {row, a.rows, k, depth}, panels_of(tile), buffer), k, depth, a);
  });
}

/// The product with columns column .. column + a.rows of m; buffer as above.
inline void multiply_columns(const ExpertTile& tile,
                             const WeightMatrix& m,
                             int64_t column,
                             const PanelProduct& a,
                             float* buffer) {
  for_depths(a.length, [&](int64_t k, int64_t depth) {
    multiply_panels(tile, columns_of(m, {k, depth, column, a.rows}, buffer), k, depth, a);
  });
}

/// All of one expert's matrix that a slice of an output needs, packed once for its tiles.
class PackedSlice {
 public:
  PackedSlice(float* buffer, int64_t length, int64_t columns)
      : buffer_(buffer), length_(length), block_(packed_floats(kDepth, columns)) {}

  /// Floats of the buffer for slices of at most kMostSlice columns.
  static int64_t floats(int64_t length) {
    return (length + kDepth - 1) / kDepth * packed_floats(kDepth, kMostSlice);
  }

  /// pack(k, depth, buffer) packs k .. k + depth, for the tile's expert where it is a new one.
  template <class Pack>
  void follow(const ExpertTile& tile, Pack&& pack) {
    if (tile.expert == expert_) return;
    expert_ = tile.expert;
    for_depths(length_, [&](int64_t k, int64_t depth) { pack(k, depth, at(k)); });
  }

  void multiply(const ExpertTile& tile, const PanelProduct& a) const {
    for_depths(length_, [&](int64_t k, int64_t depth) {
      multiply_panels(tile, packed(at(k), depth), k, depth, a);
    });
  }

 private:
  [[nodiscard]] float* at(int64_t k) const { return buffer_ + k / kDepth * block_; }

  float* buffer_;
  int64_t length_, block_, expert_ = -1;
};

}  // namespace lethe::kernels::LETHE_ISA
