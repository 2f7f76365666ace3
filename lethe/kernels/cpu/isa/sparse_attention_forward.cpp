#include "lethe/kernels/cpu/isa/attention_query.h"
#include "lethe/kernels/cpu/sparse_attention.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

/// Queries of one task: neighbours share their window in the cache.
constexpr int64_t kQueriesPerTask = 8;

/// One thread's scratch.
struct Workspace {
  float* q;        // panels [D, H]
  float* o;        // panels [D, H], not yet divided by mass
  float* logits;   // [kTileKeys, H]; then weights
  float* kept;     // [topk, H] logits of the slots, for slot_mass
  float* largest;  // [H]
  float* mass;     // [H] sum of exp(logit - largest)
  float* factor;   // [H]
  float* cosine;   // [2 * num_pairs]
  float* sine;
};

int64_t lay_out(const SparseAttentionInputs& in, float* base, Workspace& w) {
  const int64_t heads = padded_heads(in);
  int64_t used = 0;
  const auto take = [&](int64_t floats) {
    float* place = base + used;
    used += round_up(floats, 16);
    return place;
  };
  w.q = take(heads * in.width);
  w.o = take(heads * in.width);
  w.logits = take(heads * kTileKeys);
  w.kept = take(heads * in.topk);
  w.largest = take(heads);
  w.mass = take(heads);
  w.factor = take(heads);
  w.cosine = take(2 * in.num_pairs);
  w.sine = take(2 * in.num_pairs);
  return used;
}

/// The sink is the first key: it has mass and no value.
void start(const SparseAttentionInputs& in, const Workspace& w) {
  for (int64_t h = 0; h < padded_heads(in); ++h) {
    w.largest[h] = h < in.heads ? in.sink[h] : 0.0F;
    w.mass[h] = w.largest[h] == -kInfinity ? 0.0F : 1.0F;
  }
}

void keep_logits(const Workspace& w, const KeyTile& tile, int64_t heads) {
  for (int64_t key = 0; key < tile.count; ++key)
    if (tile.columns[key] >= 0)
      for (int64_t h = 0; h < heads; h += kLanes)
        store(w.kept + tile.columns[key] * heads + h, load(w.logits + key * heads + h));
}

/// Logits become weights exp(logit - largest); factor says how earlier sums shrink.
void softmax_step(const Workspace& w, int64_t count, int64_t heads) {
  for (int64_t h = 0; h < heads; h += kLanes) {
    float* z = w.logits + h;
    const Vec before = load(w.largest + h);
    Vec largest = before;
    for (int64_t key = 0; key < count; ++key) largest = max(load(z + key * heads), largest);
    const Vec base = select(largest == -kInfinity, Vec{}, largest);
    const Vec factor = exp_below_88(before - base);
    Vec mass = load(w.mass + h) * factor;
    for (int64_t key = 0; key < count; ++key) {
      const Vec e = exp_below_88(load(z + key * heads) - base);
      store(z + key * heads, e);
      mass += e;
    }
    store(w.largest + h, largest);
    store(w.mass + h, mass);
    store(w.factor + h, factor);
  }
}

void attend(const SparseAttentionForward& a, const Workspace& w, const QueryKeys& keys) {
  const SparseAttentionInputs& in = a.in;
  const int64_t heads = padded_heads(in);
  KeyTiles tiles(in, keys, 0, keys.entries());
  bool first = true;
  for (const KeyTile* tile = tiles.next(); tile != nullptr; tile = tiles.next(), first = false) {
    tile_products(*tile, in.width, heads, w.q, {w.logits, heads});
    if (a.slot_mass != nullptr) keep_logits(w, *tile, heads);
    softmax_step(w, tile->count, heads);
    RowPrefetch prefetch = tiles.prefetch();
    for_panels(heads, [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
      weighted_sums<Vecs>({tile->rows, tile->count, w.logits + head, heads},
                          in.width,
                          first ? nullptr : w.factor + head,
                          w.o + head * in.width,
                          prefetch);
    });
  }
  if (first)
    for (int64_t i = 0; i < heads * in.width; ++i) w.o[i] = 0;
}

/// o = sum / mass rotated back, lse = largest + log mass; w.factor becomes 1 / mass.
void finish(const SparseAttentionForward& a, const Workspace& w, int64_t token) {
  const SparseAttentionInputs& in = a.in;
  const int64_t heads = padded_heads(in), rotated = 2 * in.num_pairs;
  float* o = a.o + token * in.heads * in.width;
  for (int64_t h = 0; h < heads; h += kLanes) {
    const Vec mass = load(w.mass + h);
    const IVec none = mass == 0.0F;
    store(w.factor + h, select(none, Vec{}, 1.0F / mass));
    store(w.largest + h, select(none, broadcast(-kInfinity), load(w.largest + h) + log(mass)));
  }
  for (int64_t h = 0; h < in.heads; ++h) a.lse[token * in.heads + h] = w.largest[h];
  for_panels(heads, [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
    float* panel = w.o + head * in.width;
    for (int j = 0; j < Vecs; ++j) {
      const Vec factor = load(w.factor + head + j * kLanes);
      for (int64_t x = 0; x < in.width; ++x) {
        float* place = panel + (x * Vecs + j) * kLanes;
        store(place, load(place) * factor);
      }
    }
    const int64_t columns = Vecs * kLanes, rest = in.heads - head;
    transpose<false>({panel, columns},
                     in.width,
                     rest < columns ? rest : columns,
                     {o + head * in.width, in.width},
                     1.0F);
  });
  if (rotated == 0) return;
  rotation_of(in, token, -1.0F, w.cosine, w.sine);
  for (int64_t h = 0; h < in.heads; ++h)
    rotate(o + (h + 1) * in.width - rotated, rotated, w.cosine, w.sine);
}

/// Needs w.largest = lse.
void write_slot_mass(const SparseAttentionForward& a,
                     const Workspace& w,
                     const QueryKeys& keys,
                     int64_t token) {
  const int64_t heads = padded_heads(a.in);
  float* out = a.slot_mass + token * a.in.topk;
  // Padded heads and heads without mass count as 0.
  for (int64_t h = 0; h < heads; ++h)
    if (h >= a.in.heads || w.largest[h] == -kInfinity) w.largest[h] = kInfinity;
  const float share = 1.0F / static_cast<float>(a.in.heads);
  for (int64_t column = 0; column < a.in.topk; ++column) {
    Vec total{};
    if (keys.ids[column] >= 0)
      for (int64_t h = 0; h < heads; h += kLanes)
        total += exp_below_88(load(w.kept + column * heads + h) - load(w.largest + h));
    out[column] = sum(total) * share;
  }
}

void query(const SparseAttentionForward& a, const Workspace& w, int64_t token) {
  const SparseAttentionInputs& in = a.in;
  const QueryKeys keys = keys_of(in, token);
  to_panels(in, in.q + token * in.heads * in.width, in.scale, w.q);
  start(in, w);
  attend(a, w, keys);
  finish(a, w, token);
  if (a.slot_mass != nullptr) write_slot_mass(a, w, keys, token);
}

}  // namespace

int64_t sparse_attention_forward_floats(const SparseAttentionInputs& in) {
  Workspace unused;
  return lay_out(in, nullptr, unused);
}

void sparse_attention_forward(const SparseAttentionForward& a) {
  const int64_t tokens = a.in.cu_seqlens[a.in.documents];
  const int64_t floats = sparse_attention_forward_floats(a.in);
  a.parallel((tokens + kQueriesPerTask - 1) / kQueriesPerTask, [&](int64_t task, int thread) {
    Workspace w;
    lay_out(a.in, a.scratch + thread * floats, w);
    const int64_t first = task * kQueriesPerTask, after = first + kQueriesPerTask;
    for (int64_t token = first; token < (after < tokens ? after : tokens); ++token)
      query(a, w, token);
  });
}

}  // namespace lethe::kernels::LETHE_ISA
