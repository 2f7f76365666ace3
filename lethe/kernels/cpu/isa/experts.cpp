#include "lethe/kernels/cpu/experts.h"

#include "lethe/kernels/cpu/isa/expert_tiles.h"
#include "lethe/kernels/cpu/isa/swiglu.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

// Scratch of one thread; the two phases use it in turn.
struct Scratch {
  int64_t tokens, gate, product, widened;

  explicit Scratch(const ExpertSizes& sizes)
      : tokens(kExpertTile * sizes.width),
        gate(kExpertTile * kChunk),
        product(kExpertTile * kMostSlice),
        widened(rows_floats(kMostSlice)) {}

  [[nodiscard]] int64_t floats() const {
    const int64_t first = tokens + 2 * gate;
    return (first > product ? first : product) + widened;
  }
};

int64_t tile_floats(const ExpertSizes& sizes) {
  return kExpertTile * sizes.inner;
}

// gate -> activation * route weight, for `rows` channels.
struct Activate {
  const float *gate, *up;  // [rows][kTileColumns]
  int64_t rows;
  float* out;
};

void activate(const Activate& a, const float* weights, Vec bound) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t t = 0; t < kTileColumns; t += kLanes) {
      const int64_t at = i * kTileColumns + t;
      store(a.out + at, swiglu(load(a.gate + at), load(a.up + at), bound) * load(weights + t));
    }
}

// The activations of one tile: out [panel][I][kTileColumns].
void activate_tile(const ExpertsForward& a, const ExpertTile& tile, float* scratch, float* out) {
  const auto [width, inner] = a.sizes;
  const Scratch sizes(a.sizes);
  float *tokens = scratch, *gate = tokens + sizes.tokens, *up = gate + sizes.gate,
        *widened = scratch + sizes.floats() - sizes.widened;
  float weights[kExpertTile];
  read_weights(a.routes, tile, a.weights, weights);
  gather(a.routes, tile, {a.x, width, 0, width}, tokens);
  const WeightMatrix fc1 = matrix_of(a.fc1, tile.expert, 2 * inner, width);
  for_chunks(inner, [&](int64_t i, int64_t rows) {
    const int64_t panel = rows * kTileColumns;
    multiply_rows(tile, fc1, i, {rows, width, tokens, gate}, widened);
    multiply_rows(tile, fc1, inner + i, {rows, width, tokens, up}, widened);
    for (int64_t p = 0; p < panels_of(tile); ++p)
      activate({gate + p * panel, up + p * panel, rows, out + (p * inner + i) * kTileColumns},
               weights + p * kTileColumns,
               swiglu_bound(a.limit));
  });
}

// Adds columns [begin, end) of one tile's product to the output.
void add_columns(const ExpertsForward& a,
                 const ExpertTile& tile,
                 const float* activations,
                 const ColumnSums& out,
                 float* scratch) {
  const auto [width, inner] = a.sizes;
  const WeightMatrix fc2 = matrix_of(a.fc2, tile.expert, width, inner);
  const int64_t panel = out.columns * kTileColumns;
  float* widened = scratch + Scratch(a.sizes).floats() - rows_floats(kMostSlice);
  multiply_rows(tile, fc2, out.begin, {out.columns, inner, activations, scratch}, widened);
  for (int64_t p = 0; p < panels_of(tile); ++p)
    scatter_add(a.routes, tile, p, scratch + p * panel, out);
}

}  // namespace

int64_t experts_forward_scratch(const ExpertsScratch& a) {
  const int64_t tile = tile_floats(a.sizes);
  return a.threads * Scratch(a.sizes).floats() + window_tiles(tile, a.threads) * tile;
}

void experts_forward(const ExpertsForward& a) {
  const int64_t tiles = a.routes.tile_begins[a.routes.experts], tile_size = tile_floats(a.sizes);
  const int64_t per_window = window_tiles(tile_size, a.parallel.threads);
  const int64_t per_thread = Scratch(a.sizes).floats();
  float *window = a.scratch, *threads = window + per_window * tile_size;
  const Slices slices(a.sizes.width, kTileRows, a.parallel.threads);
  for (int64_t begin = 0; begin < tiles; begin += per_window) {
    const int64_t count = tiles - begin < per_window ? tiles - begin : per_window;
    a.parallel(count, [&](int64_t i, int thread) {
      activate_tile(
          a, tile_at(a.routes, begin + i), threads + thread * per_thread, window + i * tile_size);
    });
    a.parallel(slices.count, [&](int64_t slice, int thread) {
      const int64_t first = slices.begin(slice);
      const ColumnSums out{a.y, a.sizes.width, first, slices.begin(slice + 1) - first};
      for (int64_t i = 0; i < count; ++i)
        add_columns(a,
                    tile_at(a.routes, begin + i),
                    window + i * tile_size,
                    out,
                    threads + thread * per_thread);
    });
  }
}

}  // namespace lethe::kernels::LETHE_ISA
