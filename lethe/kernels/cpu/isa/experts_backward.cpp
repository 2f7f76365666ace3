#include "lethe/kernels/cpu/experts.h"
#include "lethe/kernels/cpu/isa/expert_tiles.h"
#include "lethe/kernels/cpu/isa/swiglu.h"
#include "lethe/kernels/cpu/isa/token_sums.h"

// With p = x fc1^T, a = swiglu(p) and z = weight * a, for each row:
//   dz = dy fc2,  d_weight = sum(dz * a),  dp = swiglu'(p) (weight * dz)
//   d_fc2 += dy z^T,  d_fc1 += dp x^T,  d_x += dp fc1
namespace lethe::kernels::LETHE_ISA {
namespace {

int64_t inner_panels(const ExpertSizes& sizes) {
  return round_up(sizes.inner, kTileColumns) / kTileColumns;
}

// What the first phase leaves for each tile.
struct Activations {
  float* d_projected;  // [panel][2I][kTileColumns]
  float* z;            // [panel of I][kExpertTile][kTileColumns]

  static int64_t floats(const ExpertSizes& sizes) {
    return kExpertTile * (2 * sizes.inner + inner_panels(sizes) * kTileColumns);
  }

  Activations(float* p, const ExpertSizes& sizes)
      : d_projected(p), z(p + kExpertTile * 2 * sizes.inner) {}
};

// Scratch of one thread; the two phases use it in turn.
struct Scratch {
  int64_t tokens, chunk, block, packed;  // packed: of fc1, for a slice

  explicit Scratch(const ExpertSizes& sizes)
      : tokens(kExpertTile * sizes.width),
        chunk(kExpertTile * kChunk),
        block(packed_floats(kDepth, kChunk)),
        packed(PackedSlice::floats(2 * sizes.inner)) {}

  [[nodiscard]] int64_t floats() const {
    const int64_t d_z = tokens + block, first = d_z > 3 * chunk ? d_z : 3 * chunk;
    const int64_t second = packed + kExpertTile * kMostSlice;
    return first > second ? first : second;
  }
};

// One panel of a chunk of inner channels, all [rows][kTileColumns].
struct Chunk {
  int64_t rows;
  const float *gate, *up, *d_z;
  float *d_gate, *d_up, *z;
};

void differentiate(const Chunk& a, const float* weights, Vec bound, float* d_weights) {
  for (int64_t t = 0; t < kTileColumns; t += kLanes) {
    const Vec weight = load(weights + t);
    Vec d_weight{};
    for (int64_t i = 0; i < a.rows; ++i) {
      const int64_t at = i * kTileColumns + t;
      const Vec d_z = load(a.d_z + at);
      const SwigluGradient g =
          swiglu_gradient(load(a.gate + at), load(a.up + at), d_z * weight, bound);
      d_weight = fma(d_z, g.value, d_weight);
      store(a.d_gate + at, g.d_gate);
      store(a.d_up + at, g.d_up);
      store(a.z + at, g.value * weight);
    }
    store(d_weights + t, load(d_weights + t) + d_weight);
  }
}

// z [rows][kTileColumns] of one panel of tokens, channels `first` ..., into panels of channels.
void turn(const float* z, int64_t rows, int64_t first, int64_t token, float* out) {
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t t = 0; t < kTileColumns; t += kLanes) {
      Vec v[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j)
        v[j] = i + j < rows ? load(z + (i + j) * kTileColumns + t) : Vec{};
      transpose_registers(v);
      const int64_t channel = first + i;
      float* to = out + channel / kTileColumns * kExpertTile * kTileColumns +
                  channel % kTileColumns + (token + t) * kTileColumns;
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(to + j * kTileColumns, v[j]);
    }
}

// dz [panel][rows][kTileColumns] of each chunk, where the chunk's part of z will lie.
void multiply_d_z(const ExpertsBackward& a,
                  const ExpertTile& tile,
                  float* scratch,
                  const Activations& out) {
  const auto [width, inner] = a.sizes;
  float *d_y = scratch, *buffer = d_y + Scratch(a.sizes).tokens;
  gather_tokens(a.routes, tile, {a.d_y, width, 0, width}, d_y);
  const WeightMatrix fc2 = matrix_of(a.fc2, tile.expert, width, inner);
  for_chunks(inner, [&](int64_t i, int64_t rows) {
    multiply_columns(tile, fc2, i, {rows, width, d_y, out.z + i * kExpertTile}, buffer);
  });
}

// The first phase of one tile.
void differentiate_tile(const ExpertsBackward& a,
                        const ExpertTile& tile,
                        float* scratch,
                        const Activations& out) {
  const int64_t inner = a.sizes.inner, chunk = Scratch(a.sizes).chunk;
  float *gate = scratch, *up = gate + chunk, *z = up + chunk;
  float weights[kExpertTile], d_weights[kExpertTile] = {};
  read_weights(a.routes, tile, a.weights, weights);
  if (a.d_x != nullptr || a.d_fc1 != nullptr || a.d_weights != nullptr)
    multiply_d_z(a, tile, scratch, out);
  else
    std::memset(out.z, 0, static_cast<size_t>(kExpertTile * inner) * sizeof(float));
  const auto same = [&](int64_t r) { return tile.begin + r; };
  for_chunks(inner, [&](int64_t i, int64_t rows) {
    const int64_t panel = rows * kTileColumns;
    gather_rows(tile, {a.projected, 2 * inner, i, rows}, same, gate);
    gather_rows(tile, {a.projected, 2 * inner, inner + i, rows}, same, up);
    for (int64_t p = 0; p < panels_of(tile); ++p) {
      float* d_gate = out.d_projected + (2 * p * inner + i) * kTileColumns;
      differentiate({rows,
                     gate + p * panel,
                     up + p * panel,
                     out.z + i * kExpertTile + p * panel,
                     d_gate,
                     d_gate + inner * kTileColumns,
                     z + p * panel},
                    weights + p * kTileColumns,
                    swiglu_bound(a.limit),
                    d_weights + p * kTileColumns);
    }
    for (int64_t p = 0; p < panels_of(tile); ++p)
      turn(z + p * panel, rows, i, p * kTileColumns, out.z);
  });
  if (a.d_weights == nullptr) return;
  for (int64_t t = 0; t < tile.rows; ++t)
    a.d_weights[route_of(a.routes, tile.begin + t)] = d_weights[t];
}

// The second phase: columns [begin, begin + columns) of an output, over the tiles of a window.
struct Slice {
  const ExpertsBackward& a;
  int64_t first, tiles;  // the window
  float* window;
  int64_t begin, columns;
  float* scratch;

  template <class F>
  void for_tiles(F&& f) const {
    for (int64_t i = 0; i < tiles; ++i)
      f(tile_at(a.routes, first + i),
        Activations(window + i * Activations::floats(a.sizes), a.sizes));
  }
};

// d_x[token][slice] += (dp fc1)[slice].
void add_d_x(const Slice& s) {
  const ExpertsBackward& a = s.a;
  const auto [width, inner] = a.sizes;
  float* sums = s.scratch + Scratch(a.sizes).packed;
  const int64_t length = 2 * inner;
  PackedSlice weights(s.scratch, length, s.columns);
  s.for_tiles([&](const ExpertTile& tile, const Activations& in) {
    const WeightMatrix fc1 = matrix_of(a.fc1, tile.expert, length, width);
    weights.follow(tile, [&](int64_t k, int64_t depth, float* buffer) {
      columns_of(fc1, {k, depth, s.begin, s.columns}, buffer);
    });
    weights.multiply(tile, {s.columns, length, in.d_projected, sums});
    add_to_tokens(a.routes, tile, sums, {a.d_x, width, s.begin, s.columns});
  });
}

// Columns of x of the tile's rows: out [panel of columns][kExpertTile][kTileColumns].
void copy_columns(const Slice& s, const ExpertTile& tile, float* out) {
  for (int64_t t = 0; t < tile.rows; ++t) {
    const float* from = s.a.x + token_of(s.a.routes, tile.begin + t) * s.a.sizes.width + s.begin;
    for (int64_t column = 0; column < s.columns; column += kTileColumns)
      copy_line(from + column,
                s.columns - column,
                out + (column / kTileColumns * kExpertTile + t) * kTileColumns);
  }
}

// d_fc1[:, slice] += dp x[slice]^T.
void add_d_fc1(const Slice& s) {
  const auto [width, inner] = s.a.sizes;
  s.for_tiles([&](const ExpertTile& tile, const Activations& in) {
    copy_columns(s, tile, s.scratch);
    sum_tokens({.tokens = tile.rows,
                .rows = 2 * inner,
                .columns = s.columns,
                .left = in.d_projected,
                .right = s.scratch,
                .right_rows = kExpertTile,
                .c = s.a.d_fc1 + tile.expert * 2 * inner * width + s.begin,
                .c_row = width,
                .add = !tile.first});
  });
}

// d_fc2[slice] += dy[slice] z^T.
void add_d_fc2(const Slice& s) {
  const auto [width, inner] = s.a.sizes;
  s.for_tiles([&](const ExpertTile& tile, const Activations& in) {
    gather_tokens(s.a.routes, tile, {s.a.d_y, width, s.begin, s.columns}, s.scratch);
    sum_tokens({.tokens = tile.rows,
                .rows = s.columns,
                .columns = inner,
                .left = s.scratch,
                .right = in.z,
                .right_rows = kExpertTile,
                .c = s.a.d_fc2 + (tile.expert * width + s.begin) * inner,
                .c_row = inner,
                .add = !tile.first});
  });
}

void clear_experts_without_rows(const ExpertsBackward& a) {
  const auto matrix = static_cast<size_t>(a.sizes.width * a.sizes.inner);
  a.parallel(a.routes.experts, [&](int64_t e, int) {
    if (a.routes.begins[e] < a.routes.begins[e + 1]) return;
    if (a.d_fc1 != nullptr)
      std::memset(a.d_fc1 + e * 2 * static_cast<int64_t>(matrix), 0, 2 * matrix * sizeof(float));
    if (a.d_fc2 != nullptr)
      std::memset(a.d_fc2 + e * static_cast<int64_t>(matrix), 0, matrix * sizeof(float));
  });
}

// One output of the second phase.
struct Output {
  void (*add)(const Slice& slice);
  Slices slices;
};

}  // namespace

int64_t experts_backward_scratch(const ExpertsScratch& a) {
  const int64_t tile = Activations::floats(a.sizes);
  return a.threads * Scratch(a.sizes).floats() + window_tiles(tile, a.threads) * tile;
}

void experts_backward(const ExpertsBackward& a) {
  const auto [width, inner] = a.sizes;
  const int threads = a.parallel.threads;
  const int64_t tiles = a.routes.tile_begins[a.routes.experts];
  const int64_t tile_size = Activations::floats(a.sizes), per_thread = Scratch(a.sizes).floats();
  const int64_t per_window = window_tiles(tile_size, threads);
  float *window = a.scratch, *scratch = window + per_window * tile_size;
  const Output outputs[] = {
      {&add_d_x, Slices(a.d_x == nullptr ? 0 : width, kTileRows, threads)},
      {&add_d_fc1, Slices(a.d_fc1 == nullptr ? 0 : width, kTileColumns, threads)},
      {&add_d_fc2, Slices(a.d_fc2 == nullptr ? 0 : width, kTileRows, threads)}};
  clear_experts_without_rows(a);
  for (int64_t begin = 0; begin < tiles; begin += per_window) {
    const int64_t count = tiles - begin < per_window ? tiles - begin : per_window;
    a.parallel(count, [&](int64_t i, int thread) {
      differentiate_tile(a,
                         tile_at(a.routes, begin + i),
                         scratch + thread * per_thread,
                         Activations(window + i * tile_size, a.sizes));
    });
    const int64_t tasks =
        outputs[0].slices.count + outputs[1].slices.count + outputs[2].slices.count;
    a.parallel(tasks, [&](int64_t task, int thread) {
      const Output* output = outputs;
      for (; task >= output->slices.count; ++output) task -= output->slices.count;
      const int64_t first = output->slices.begin(task);
      output->add({a,
                   begin,
                   count,
                   window,
                   first,
                   output->slices.begin(task + 1) - first,
                   scratch + thread * per_thread});
    });
  }
}

}  // namespace lethe::kernels::LETHE_ISA
