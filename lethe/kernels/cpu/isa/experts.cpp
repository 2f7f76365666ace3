#include "lethe/kernels/cpu/experts.h"

#include "lethe/kernels/cpu/isa/expert_tiles.h"
#include "lethe/kernels/cpu/isa/swiglu.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

// Scratch of one thread; the two phases use it in turn.
struct Scratch {
  int64_t tokens, gate, chunk, packed, product;  // chunk: of fc1; packed: of fc2, for a slice

  explicit Scratch(const ExpertSizes& sizes)
      : tokens(kExpertTile * sizes.width),
        gate(kExpertTile * kChunk),
        chunk(packed_floats(kDepth, kChunk)),
        packed(PackedSlice::floats(sizes.inner)),
        product(kExpertTile * kMostSlice) {}

  [[nodiscard]] int64_t floats() const {
    const int64_t first = tokens + 2 * gate + chunk, second = packed + product;
    return first > second ? first : second;
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

// Columns [begin, begin + columns) of the first product, from its panels.
void keep_projected(const ExpertsForward& a,
                    const ExpertTile& tile,
                    const float* panels,
                    int64_t begin,
                    int64_t columns) {
  scatter_rows<false>(
      tile, panels, {a.projected, 2 * a.sizes.inner, begin, columns}, [&](int64_t r) {
        return tile.begin + r;
      });
}

// The activations of one tile: out [panel][I][kTileColumns].
void activate_tile(const ExpertsForward& a, const ExpertTile& tile, float* scratch, float* out) {
  const auto [width, inner] = a.sizes;
  const Scratch sizes(a.sizes);
  float *tokens = scratch, *gate = tokens + sizes.tokens, *up = gate + sizes.gate,
        *buffer = up + sizes.gate;
  float weights[kExpertTile];
  read_weights(a.routes, tile, a.weights, weights);
  gather_tokens(a.routes, tile, {a.x, width, 0, width}, tokens);
  const WeightMatrix fc1 = matrix_of(a.fc1, tile.expert, 2 * inner, width);
  for_chunks(inner, [&](int64_t i, int64_t rows) {
    const int64_t panel = rows * kTileColumns;
    multiply_rows(tile, fc1, i, {rows, width, tokens, gate}, buffer);
    multiply_rows(tile, fc1, inner + i, {rows, width, tokens, up}, buffer);
    if (a.projected != nullptr) {
      keep_projected(a, tile, gate, i, rows);
      keep_projected(a, tile, up, inner + i, rows);
    }
    for (int64_t p = 0; p < panels_of(tile); ++p)
      activate({gate + p * panel, up + p * panel, rows, out + (p * inner + i) * kTileColumns},
               weights + p * kTileColumns,
               swiglu_bound(a.limit));
  });
}

// One slice of the outputs over the tiles of a window.
struct Slice {
  const ExpertsForward& a;
  int64_t first, tiles;  // the window
  const float* window;   // its activations
  int64_t begin, columns;
  float* scratch;
};

// y[token][slice] += (activations fc2^T)[slice].
void add_y(const Slice& s) {
  const auto [width, inner] = s.a.sizes;
  float* sums = s.scratch + Scratch(s.a.sizes).packed;
  PackedSlice weights(s.scratch, inner, s.columns);
  for (int64_t i = 0; i < s.tiles; ++i) {
    const ExpertTile tile = tile_at(s.a.routes, s.first + i);
    const WeightMatrix fc2 = matrix_of(s.a.fc2, tile.expert, width, inner);
    weights.follow(tile, [&](int64_t k, int64_t depth, float* buffer) {
      pack_rows_of(fc2, {s.begin, s.columns, k, depth}, buffer);
    });
    weights.multiply(tile, {s.columns, inner, s.window + i * tile_floats(s.a.sizes), sums});
    add_to_tokens(s.a.routes, tile, sums, {s.a.y, width, s.begin, s.columns});
  }
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
      add_y({a,
             begin,
             count,
             window,
             first,
             slices.begin(slice + 1) - first,
             threads + thread * per_thread});
    });
  }
}

}  // namespace lethe::kernels::LETHE_ISA
