#include "lethe/kernels/cpu/isa/attention_query.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/sparse_attention.h"

namespace lethe::kernels::LETHE_ISA {

int64_t sparse_attention_forward_floats(const SparseAttentionInputs& in);

namespace {

constexpr float kInfinity = __builtin_inff();

/// Partial sums of d_sink.
constexpr int64_t kSinkPartials = 32;

/// Keys of a query handled between two barriers, at most.
constexpr int64_t kMostKeys = 21 * kTileKeys;

/// Scratch of a block of queries, at most.
constexpr int64_t kBlockFloats = 3 << 19;
constexpr int64_t kMostQueries = 48, kFewestQueries = 4;

/// Keys whose weights stay in L1 while all columns of a slice pass.
constexpr int64_t kGroupKeys = kTileKeys / 2;
static_assert(kGroupKeys % kKeyRows == 0);

/// A block of queries between its two phases: first every query leaves its weights and its factors
/// here, then every slice of columns of d_kv and d_slots adds their products.
///   d key = sum over heads of P d_o + dz (scale q)
struct Block {
  int64_t queries, keys;  // capacity; keys per query, whole tiles
  int64_t weight_row;     // 2 * padded heads, and padding against cache conflicts
  int64_t num_panels;     // of kTileColumns channels
  float* weights;         // [queries][keys, weight_row]: P then dz
  float* factors;         // [queries][num_panels][2 * padded heads, kTileColumns]: d_o then q
  float* sinks;           // [queries, padded heads]
  float* sink_partials;   // [kSinkPartials, padded heads]
  int32_t* counts;        // [queries]
  int32_t* ids;           // [queries][keys]
  int64_t first, size;    // queries now
  int64_t entry;          // first entry of each query's keys now

  float* weights_of(int64_t i) const { return weights + i * keys * weight_row; }

  float* factors_of(int64_t i, int64_t heads) const {
    return factors + i * num_panels * 2 * heads * kTileColumns;
  }
};

/// One thread's scratch.
struct Workspace {
  float* q;      // panels [D, H], scaled
  float* d_o;    // panels [D, H]
  float* rows;   // [H, D] d_o as it was before o was rotated back
  float* d_q;    // panels [D, H]
  float* lse;    // [H]; inf where there is no mass
  float* delta;  // [H]
  float* ones;   // [H]
  float* cosine;
  float* sine;
};

class Layout {
 public:
  explicit Layout(float* base) : base_(base) {}

  float* take(int64_t floats) {
    float* place = base_ + used_;
    used_ += round_up(floats, 16);
    return place;
  }

  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

int64_t most_keys(const SparseAttentionInputs& in) {
  int64_t longest = 0;
  for (int64_t d = 0; d < in.documents; ++d) {
    const int64_t length = in.cu_seqlens[d + 1] - in.cu_seqlens[d];
    longest = length > longest ? length : longest;
  }
  const int64_t window = in.window < longest ? in.window : longest;
  int64_t slots = in.topk;
  if (in.indices == nullptr && in.ratio > 0) slots = longest / in.ratio;
  const int64_t keys = round_up(window + slots, kTileKeys);
  return keys < kMostKeys ? keys : kMostKeys;
}

/// Depends on shapes alone.
Block lay_out_block(const SparseAttentionInputs& in, Layout& layout, int32_t* key_ids) {
  const int64_t heads = padded_heads(in);
  Block b{};
  b.keys = most_keys(in);
  b.weight_row = 2 * heads + kLanes;
  b.num_panels = (in.width + kTileColumns - 1) / kTileColumns;
  const int64_t factors = b.num_panels * 2 * heads * kTileColumns;
  const int64_t affordable = kBlockFloats / (b.keys * b.weight_row + factors + 1);
  b.queries = affordable < kFewestQueries ? kFewestQueries
              : affordable > kMostQueries ? kMostQueries
                                          : affordable;
  b.weights = layout.take(b.queries * b.keys * b.weight_row);
  b.factors = layout.take(b.queries * factors);
  b.sinks = layout.take(b.queries * heads);
  b.sink_partials = layout.take(kSinkPartials * heads);
  b.counts = key_ids;
  b.ids = key_ids + b.queries;
  return b;
}

Workspace lay_out_thread(const SparseAttentionInputs& in, Layout& layout) {
  const int64_t heads = padded_heads(in);
  Workspace w{};
  w.q = layout.take(heads * in.width);
  w.d_o = layout.take(heads * in.width);
  w.rows = layout.take(heads * in.width);
  w.d_q = layout.take(heads * in.width);
  w.lse = layout.take(heads);
  w.delta = layout.take(heads);
  w.ones = layout.take(heads);
  w.cosine = layout.take(2 * in.num_pairs);
  w.sine = layout.take(2 * in.num_pairs);
  return w;
}

/// Gradient of o as the sums over keys gave it: turned like the queries.
void load_gradient(const SparseAttentionBackward& a, const Workspace& w, int64_t token) {
  const SparseAttentionInputs& in = a.in;
  const int64_t size = in.heads * in.width, rotated = 2 * in.num_pairs;
  std::memcpy(w.rows, a.d_o + token * size, static_cast<size_t>(size) * sizeof(float));
  if (rotated == 0) return;
  rotation_of(in, token, 1.0F, w.cosine, w.sine);
  for (int64_t h = 0; h < in.heads; ++h)
    rotate(w.rows + (h + 1) * in.width - rotated, rotated, w.cosine, w.sine);
}

/// lse, delta = <d_o, o> (no rotation changes it), and the query's part of d_sink.
void load_scalars(const SparseAttentionBackward& a,
                  const Workspace& w,
                  int64_t token,
                  float* sinks) {
  const SparseAttentionInputs& in = a.in;
  const int64_t heads = padded_heads(in);
  for (int64_t h = 0; h < heads; ++h) {
    w.ones[h] = 1;
    w.lse[h] = w.delta[h] = sinks[h] = 0;
  }
  for (int64_t h = 0; h < in.heads; ++h) {
    const int64_t row = token * in.heads + h;
    const float *o = a.o + row * in.width, *d_o = a.d_o + row * in.width;
    Vec inner{};
    for_vectors(in.width, [&](int64_t x, int64_t count) {
      inner = fma(get(o + x, count), get(d_o + x, count), inner);
    });
    w.delta[h] = sum(inner);
    w.lse[h] = a.lse[row] == -kInfinity ? kInfinity : a.lse[row];
    sinks[h] = in.sink[h];
  }
  for (int64_t h = 0; h < heads; h += kLanes)
    store(sinks + h, exp_below_88(load(sinks + h) - load(w.lse + h)) * load(w.delta + h));
}

/// rows [heads, width] * factor -> the rows `first`... of the panels of channels.
void pack(const SparseAttentionInputs& in,
          const Matrix<const float>& rows,
          float factor,
          float* panels) {
  const int64_t heads = padded_heads(in), panel = 2 * heads * kTileColumns;
  for (int64_t x = 0; x < in.width; x += kTileColumns, panels += panel)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < kTileColumns; j += kLanes) {
        const int64_t rest = h < in.heads ? in.width - x - j : 0;
        float* place = panels + h * kTileColumns + j;
        if (rest >= kLanes)
          store(place, load(rows.at(h, x + j)) * factor);
        else
          store(place, rest > 0 ? load_some(rows.at(h, x + j), rest) * factor : Vec{});
      }
}

/// From <scale q, k> and <d_o, k> in place: P = exp(z - lse) and dz = P (<d_o, k> - delta).
void weights_of_tile(const Workspace& w, int64_t count, int64_t heads, Matrix<float> weights) {
  for (int64_t h = 0; h < heads; h += kLanes) {
    const Vec lse = load(w.lse + h), delta = load(w.delta + h);
    for (int64_t key = 0; key < count; ++key) {
      const Vec p = exp_below_88(load(weights.at(key, h)) - lse);
      store(weights.at(key, h), p);
      float* dz = weights.at(key, heads + h);
      store(dz, p * (load(dz) - delta));
    }
    for (int64_t key = count; key < round_up(count, kKeyRows); ++key) {
      store(weights.at(key, h), Vec{});
      store(weights.at(key, heads + h), Vec{});
    }
  }
}

/// Weights, ids and d_q of the keys of this chunk; the number of keys.
int64_t weigh_keys(const SparseAttentionBackward& a,
                   const Workspace& w,
                   const Block& block,
                   int64_t i) {
  const SparseAttentionInputs& in = a.in;
  const int64_t heads = padded_heads(in);
  const QueryKeys keys = keys_of(in, block.first + i);
  KeyTiles tiles(in, keys, block.entry, block.entry + block.keys);
  int64_t count = 0;
  for (const KeyTile* tile = tiles.next(); tile != nullptr; tile = tiles.next()) {
    const Matrix<float> weights{block.weights_of(i) + count * block.weight_row, block.weight_row};
    tile_products(*tile, in.width, heads, w.q, weights);
    tile_products(*tile, in.width, heads, w.d_o, {weights.at(0, heads), weights.stride});
    weights_of_tile(w, tile->count, heads, weights);
    RowPrefetch prefetch = tiles.prefetch();
    for_panels(heads, [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
      weighted_sums<Vecs>({tile->rows, tile->count, weights.at(0, heads + head), weights.stride},
                          in.width,
                          count == 0 ? nullptr : w.ones,
                          w.d_q + head * in.width,
                          prefetch);
    });
    for (int64_t key = 0; key < tile->count; ++key)
      block.ids[i * block.keys + count + key] = tile->ids[key];
    count += tile->count;
  }
  return count;
}

/// d_q = or += scale * the sums of this chunk.
void write_d_q(const SparseAttentionBackward& a, const Workspace& w, int64_t token, bool add) {
  const SparseAttentionInputs& in = a.in;
  for_panels(padded_heads(in), [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
    const int64_t columns = Vecs * kLanes, rest = in.heads - head;
    const int64_t real = rest < columns ? rest : columns;
    const Matrix<const float> from{w.d_q + head * in.width, columns};
    const Matrix<float> to{a.d_q + (token * in.heads + head) * in.width, in.width};
    if (add)
      transpose<true>(from, in.width, real, to, in.scale);
    else
      transpose<false>(from, in.width, real, to, in.scale);
  });
}

/// Phase 1 for one query of the block.
void weigh(const SparseAttentionBackward& a, const Workspace& w, const Block& block, int64_t i) {
  const SparseAttentionInputs& in = a.in;
  const int64_t token = block.first + i, heads = padded_heads(in), size = in.heads * in.width;
  load_gradient(a, w, token);
  load_scalars(a, w, token, block.sinks + i * heads);
  to_panels(in, in.q + token * size, in.scale, w.q);
  to_panels(in, w.rows, 1.0F, w.d_o);
  float* factors = block.factors_of(i, heads);
  pack(in, {w.rows, in.width}, 1.0F, factors);
  pack(in, {in.q + token * size, in.width}, in.scale, factors + heads * kTileColumns);
  const int64_t count = weigh_keys(a, w, block, i);
  block.counts[i] = static_cast<int32_t>(count);
  if (count > 0)
    write_d_q(a, w, token, block.entry > 0);
  else if (block.entry == 0)
    std::memset(a.d_q + token * size, 0, static_cast<size_t>(size) * sizeof(float));
}

float* gradient_row(const SparseAttentionBackward& a, int32_t id) {
  const int64_t tokens = a.in.cu_seqlens[a.in.documents];
  return id < tokens ? a.d_kv + id * a.in.width : a.d_slots + (id - tokens) * a.in.width;
}

/// add_to_rows for the last channels, fewer than a panel.
void add_to_row_ends(Matrix<const float> weights,
                     int64_t depth,
                     const float* factors,
                     float* const* places,
                     int64_t columns) {
  float ends[kKeyRows][kTileColumns] = {};
  float* rows[kKeyRows];
  for (int i = 0; i < kKeyRows; ++i) {
    rows[i] = ends[i];
    for (int64_t x = 0; x < columns; ++x) ends[i][x] = places[i][x];
  }
  add_to_rows(weights.data, weights.stride, depth, factors, rows);
  for (int i = 0; i < kKeyRows; ++i)
    for (int64_t x = 0; x < columns; ++x) places[i][x] = ends[i][x];
}

/// Phase 2: panels [first, last) of channels of d_kv and d_slots.
struct Slice {
  int64_t first, last;
};

/// `count` keys of query i from `key` on.
void add_group(const SparseAttentionBackward& a,
               const Block& block,
               const Slice& slice,
               int64_t i,
               int64_t key,
               int64_t count) {
  const int64_t depth = 2 * padded_heads(a.in), width = a.in.width;
  const float* weights = block.weights_of(i) + key * block.weight_row;
  const int32_t* ids = block.ids + i * block.keys + key;
  float nowhere[kTileColumns] = {};
  float* rows[kGroupKeys];
  for (int64_t k = 0; k < round_up(count, kKeyRows); ++k)
    rows[k] = k < count ? gradient_row(a, ids[k]) : nullptr;
  for (int64_t p = slice.first; p < slice.last; ++p) {
    const float* factors = block.factors_of(i, depth / 2) + p * depth * kTileColumns;
    const int64_t x = p * kTileColumns;
    for (int64_t k = 0; k < count; k += kKeyRows) {
      float* places[kKeyRows];
      for (int64_t r = 0; r < kKeyRows; ++r)
        places[r] = rows[k + r] == nullptr ? nowhere : rows[k + r] + x;
      const Matrix<const float> of_keys{weights + k * block.weight_row, block.weight_row};
      if (x + kTileColumns <= width)
        add_to_rows(of_keys.data, of_keys.stride, depth, factors, places);
      else
        add_to_row_ends(of_keys, depth, factors, places, width - x);
    }
  }
}

void add_slice(const SparseAttentionBackward& a, const Block& block, const Slice& slice) {
  for (int64_t i = 0; i < block.size; ++i)
    for (int64_t key = 0; key < block.counts[i]; key += kGroupKeys) {
      const int64_t rest = block.counts[i] - key;
      add_group(a, block, slice, i, key, rest < kGroupKeys ? rest : kGroupKeys);
    }
}

/// One slice of channels to a thread: the weights are read from memory once per slice. How channels
/// are cut does not change any sum.
void add_block(const SparseAttentionBackward& a, const Block& block) {
  const int64_t step = (block.num_panels + a.parallel.threads - 1) / a.parallel.threads;
  a.parallel((block.num_panels + step - 1) / step, [&](int64_t task, int) {
    const int64_t first = task * step, last = first + step;
    add_slice(a, block, {first, last < block.num_panels ? last : block.num_panels});
  });
}

void add_sinks(const SparseAttentionInputs& in, const Block& block, int64_t partial) {
  const int64_t heads = padded_heads(in);
  float* total = block.sink_partials + partial * heads;
  for (int64_t h = 0; h < heads; h += kLanes) {
    Vec of_block{};
    for (int64_t i = 0; i < block.size; ++i) of_block += load(block.sinks + i * heads + h);
    store(total + h, load(total + h) + of_block);
  }
}

void write_d_sink(const SparseAttentionBackward& a, const Block& block) {
  const int64_t heads = padded_heads(a.in);
  for (int64_t h = 0; h < a.in.heads; ++h) {
    float total = 0;
    for (int64_t i = 0; i < kSinkPartials; ++i) total += block.sink_partials[i * heads + h];
    a.d_sink[h] = -total;
  }
}

int64_t most_entries(const SparseAttentionInputs& in, const Block& block) {
  int64_t most = 1;
  for (int64_t i = 0; i < block.size; ++i) {
    const int64_t entries = keys_of(in, block.first + i).entries();
    most = entries > most ? entries : most;
  }
  return most;
}

}  // namespace

SparseAttentionScratch sparse_attention_scratch(const SparseAttentionScratchOf& a) {
  if (!a.backward) return {a.threads * sparse_attention_forward_floats(a.in), 0};
  Layout of_block(nullptr), of_thread(nullptr);
  const Block block = lay_out_block(a.in, of_block, nullptr);
  lay_out_thread(a.in, of_thread);
  return {of_block.used() + a.threads * of_thread.used(), block.queries * (1 + block.keys)};
}

void sparse_attention_backward(const SparseAttentionBackward& a) {
  const SparseAttentionInputs& in = a.in;
  const int64_t tokens = in.cu_seqlens[in.documents], heads = padded_heads(in);
  Layout layout(a.scratch), of_thread(nullptr);
  Block block = lay_out_block(in, layout, a.key_ids);
  lay_out_thread(in, of_thread);
  const int64_t blocks = tokens == 0 ? 0 : (tokens + block.queries - 1) / block.queries;
  for (int64_t i = 0; i < kSinkPartials * heads; ++i) block.sink_partials[i] = 0;
  for (int64_t number = 0; number < blocks; ++number) {
    block.first = number * block.queries;
    block.size = tokens - block.first < block.queries ? tokens - block.first : block.queries;
    const int64_t entries = most_entries(in, block);
    for (block.entry = 0; block.entry < entries; block.entry += block.keys) {
      a.parallel(block.size, [&](int64_t i, int thread) {
        Layout own(a.scratch + layout.used() + thread * of_thread.used());
        weigh(a, lay_out_thread(in, own), block, i);
      });
      if (block.entry == 0) add_sinks(in, block, number * kSinkPartials / blocks);
      add_block(a, block);
    }
  }
  write_d_sink(a, block);
}

}  // namespace lethe::kernels::LETHE_ISA
