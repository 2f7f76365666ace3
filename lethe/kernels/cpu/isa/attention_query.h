#pragma once

#include "lethe/kernels/cpu/isa/key_tiles.h"
#include "lethe/kernels/cpu/isa/transpose.h"
#include "lethe/kernels/cpu/isa/vec_math.h"
#include "lethe/kernels/cpu/sparse_attention.h"

// Inside cpu/isa/ only: what both directions of sparse attention do per query.
namespace lethe::kernels::LETHE_ISA {

/// Keys handled at a time: whole register tiles, and rows, logits and a query's panels stay in L2.
inline constexpr int64_t kTileKeys = 48;
static_assert(kTileKeys % kKeyRows == 0);

/// Channels of a product at a time: a panel's part stays in L1 while all keys pass.
inline constexpr int64_t kDepth = 128;

/// Heads with their padding to whole vectors. Padded heads have zero queries and gradients: their
/// lanes compute nothing that is read.
LETHE_INLINE int64_t padded_heads(const SparseAttentionInputs& in) {
  return round_up(in.heads, kLanes);
}

/// f(first head, vectors as a constant) for every panel of heads.
template <class F>
LETHE_INLINE void for_panels(int64_t padded, F&& f) {
  int64_t head = 0;
  for (; head + kTileColumns <= padded; head += kTileColumns) f(head, Lanes<kTileVecs>{});
  if (head < padded) f(head, Lanes<1>{});
}

/// The keys of one query: window rows, then slots.
struct QueryKeys {
  int64_t window_begin, window_count;  // rows of kv
  int64_t slot_begin, slot_count;      // rows of slots; with ids: 0 and the columns of ids
  const int32_t* ids;                  // the query's row of indices, or nullptr

  /// Upper bound of the number of keys (entries of -1 count).
  LETHE_INLINE int64_t entries() const { return window_count + slot_count; }
};

LETHE_INLINE QueryKeys keys_of(const SparseAttentionInputs& in, int64_t token) {
  int64_t low = 0, high = in.documents;  // the document lies in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (in.cu_seqlens[middle] <= token ? low : high) = middle;
  }
  const int64_t seen = token - in.cu_seqlens[low] + 1;
  const int64_t count = seen < in.window ? seen : in.window;
  QueryKeys keys{token + 1 - count, count, 0, 0, nullptr};
  if (in.indices != nullptr) {
    keys.ids = in.indices + token * in.topk;
    keys.slot_count = in.topk;
  } else if (in.ratio > 0) {
    keys.slot_begin = in.cu_slots[low];
    const int64_t all = in.cu_slots[low + 1] - in.cu_slots[low], complete = seen / in.ratio;
    keys.slot_count = complete < all ? complete : all;
  }
  return keys;
}

/// Some keys of a query in their order.
struct KeyTile {
  const float* rows[kTileKeys];  // `count` rows, then the last one again up to whole kKeyRows
  int32_t ids[kTileKeys];        // token, or T + slot
  int32_t columns[kTileKeys];    // of indices; -1: not from there
  int64_t count;
};

/// Reads keys from entry `entry` on and advances it; none is left when the count is 0.
LETHE_INLINE void next_tile(const SparseAttentionInputs& in,
                            const QueryKeys& keys,
                            int64_t end,
                            int64_t& entry,
                            KeyTile& tile) {
  const auto tokens = in.cu_seqlens[in.documents];
  int64_t n = 0;
  for (; entry < end && n < kTileKeys; ++entry) {
    const int64_t column = entry - keys.window_count;
    if (column < 0) {
      const int64_t token = keys.window_begin + entry;
      tile.rows[n] = in.kv + token * in.width;
      tile.ids[n] = static_cast<int32_t>(token);
      tile.columns[n++] = -1;
      continue;
    }
    const int64_t slot = keys.ids == nullptr ? keys.slot_begin + column : keys.ids[column];
    if (slot < 0) continue;
    tile.rows[n] = in.slots + slot * in.width;
    tile.ids[n] = static_cast<int32_t>(tokens + slot);
    tile.columns[n++] = keys.ids == nullptr ? -1 : static_cast<int32_t>(column);
  }
  tile.count = n;
  for (; n > 0 && n % kKeyRows != 0; ++n) tile.rows[n] = tile.rows[n - 1];
}

/// The tiles of the entries [entry, end) of a query's keys, read one ahead.
class KeyTiles {
 public:
  LETHE_INLINE KeyTiles(const SparseAttentionInputs& in,
                        const QueryKeys& keys,
                        int64_t entry,
                        int64_t end)
      : in_(in), keys_(keys), entry_(entry), end_(end < keys.entries() ? end : keys.entries()) {
    next_tile(in_, keys_, end_, entry_, tiles_[0]);
  }

  /// nullptr after the last.
  LETHE_INLINE const KeyTile* next() {
    const KeyTile* tile = &tiles_[now_];
    if (tile->count == 0) return nullptr;
    now_ ^= 1;
    next_tile(in_, keys_, end_, entry_, tiles_[now_]);
    return tile;
  }

  /// For weighted_sums of the tile that next() gave: reads ahead the rows of the one after it.
  LETHE_INLINE RowPrefetch prefetch() const {
    const int64_t panels = (padded_heads(in_) + kTileColumns - 1) / kTileColumns;
    return {
        tiles_[now_].rows, tiles_[now_].count, in_.width, panels * weighted_sums_steps(in_.width)};
  }

 private:
  const SparseAttentionInputs& in_;
  const QueryKeys& keys_;
  int64_t entry_, end_;
  int now_ = 0;
  KeyTile tiles_[2];
};

/// rows [heads, width] * factor -> panels of heads [width, panel], padded heads 0.
LETHE_INLINE void to_panels(const SparseAttentionInputs& in,
                            const float* rows,
                            float factor,
                            float* panels) {
  for_panels(padded_heads(in), [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
    const int64_t columns = Vecs * kLanes, rest = in.heads - head;
    const int64_t real = rest < columns ? rest : columns;
    float* panel = panels + head * in.width;
    transpose<false>({rows + head * in.width, in.width}, real, in.width, {panel, columns}, factor);
    for (int64_t x = 0; x < in.width; ++x)
      for (int64_t h = real; h < columns; ++h) panel[x * columns + h] = 0;
  });
}

/// products[key * row + head] of a tile with all heads of `panels`.
LETHE_INLINE void tile_products(const KeyTile& tile,
                                int64_t width,
                                int64_t padded,
                                const float* panels,
                                Matrix<float> products) {
  for (int64_t x = 0; x < width; x += kDepth) {
    const int64_t depth = width - x < kDepth ? width - x : kDepth;
    for_panels(padded, [&]<int Vecs>(int64_t head, Lanes<Vecs>) {
      const float* b = panels + head * width + x * Vecs * kLanes;
      for (int64_t key = 0; key < tile.count; key += kKeyRows) {
        const float* rows[kKeyRows];
#pragma GCC unroll 16
        for (int i = 0; i < kKeyRows; ++i) rows[i] = tile.rows[key + i] + x;
        float* c = products.at(key, head);
        if (x == 0)
          key_products<Vecs, false>(rows, depth, b, c, products.stride);
        else
          key_products<Vecs, true>(rows, depth, b, c, products.stride);
      }
    });
  }
}

/// cos and sin of a query's rotation, each twice: [2 * num_pairs]; sines alternate in sign, so that
/// pairs turn as x * cos + swapped x * sin. direction 1: as q and kv were, -1: back.
LETHE_INLINE void rotation_of(
    const SparseAttentionInputs& in, int64_t token, float direction, float* cosine, float* sine) {
  for (int64_t m = 0; m < in.num_pairs; ++m) {
    const float angle = static_cast<float>(in.positions[token]) * in.inv_freq[m];
    const float c = __builtin_cosf(angle), s = direction * __builtin_sinf(angle);
    cosine[2 * m] = cosine[2 * m + 1] = c;
    sine[2 * m] = -s;
    sine[2 * m + 1] = s;
  }
}

template <int... Lane>
LETHE_INLINE Vec swap_pairs(Vec v, Lanes<Lane...>) {
  return __builtin_shufflevector(v, v, (Lane ^ 1)...);
}

/// Rotates `count` values (pairs) in place.
LETHE_INLINE void rotate(float* x, int64_t count, const float* cosine, const float* sine) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec v = load(x + i);
    store(x + i, fma(swap_pairs(v, AllLanes{}), load(sine + i), v * load(cosine + i)));
  }
  for (; i < count; i += 2) {
    const float a = x[i], b = x[i + 1];
    x[i] = __builtin_fmaf(b, sine[i], a * cosine[i]);
    x[i + 1] = __builtin_fmaf(a, sine[i + 1], b * cosine[i + 1]);
  }
}

}  // namespace lethe::kernels::LETHE_ISA
