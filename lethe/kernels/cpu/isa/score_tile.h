#pragma once

#include "lethe/kernels/cpu/indexer_arrays.h"
#include "lethe/kernels/cpu/isa/lanes.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/transpose.h"

// Inside cpu/isa/ only: index scores with the keys as lanes, so that the sum over heads needs no
// step across lanes.
namespace lethe::kernels::LETHE_ISA {

/// A panel is this many keys; the heads of one query run through it in groups of rows. Multiples of
/// 4 (8) heads leave no rest: index heads are 16 or 64.
inline constexpr int kPanelVecs = 3;
inline constexpr int kPanelKeys = kPanelVecs * kLanes;
inline constexpr int kGroupHeads = kRegisters == 32 ? 8 : 4;

/// to[d * stride + lane] = row `lane` of `from` [count, width] at d; zeros for lane >= count.
LETHE_INLINE void rows_to_lanes(
    const float* from, int64_t count, int64_t width, float* to, int64_t stride) {
  for (int64_t d = 0; d < width; d += kLanes) {
    const int64_t some = least(kLanes, width - d);
    Vec block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) block[i] = i < count ? get(from + i * width + d, some) : Vec{};
    transpose_registers(block);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      if (i < some) store(to + (d + i) * stride, block[i]);
  }
}

/// Panels [dim][kPanelKeys] of the `count` keys, the last one filled up with zeros.
LETHE_INLINE void pack_keys(const float* k, int64_t count, int64_t dim, float* panels) {
  for (int64_t key = 0; key < count; key += kPanelKeys)
    for (int vec = 0; vec < kPanelVecs; ++vec) {
      const int64_t first = key + vec * kLanes, rest = count - first;
      rows_to_lanes(k + first * dim,
                    least(kLanes, rest < 0 ? 0 : rest),
                    dim,
                    panels + key * dim + vec * kLanes,
                    kPanelKeys);
    }
}

/// scores = or += sum over `Heads` heads of w * relu(<q, key>). A function of its own: constants of
/// a caller would take registers from the tile.
template <int Heads>
__attribute__((noinline)) void add_heads(
    int64_t dim, const float* q, const float* w, const float* panel, float* scores, bool first) {
  Vec dot[Heads][kPanelVecs] = {};
  for (int64_t d = 0; d < dim; ++d) {
    Vec key[kPanelVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVecs; ++v) key[v] = in_register(load(panel + v * kLanes));
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) {
      const Vec element = broadcast(q[h * dim + d]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVecs; ++v) dot[h][v] = fma(element, key[v], dot[h][v]);
    }
    panel += kPanelKeys;
  }
  const Vec zero = late_zero();
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVecs; ++v) {
    Vec score = first ? Vec{} : load(scores + v * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h)
      score = fma(broadcast(w[h]), max(zero, dot[h][v]), score);  // in this order NaN stays NaN
    store(scores + v * kLanes, score);
  }
}

/// Scores of one query over one panel. Every score is the same sum whatever panel it lies in.
LETHE_INLINE void score_panel(const IndexerArrays& in,
                              int64_t query,
                              const float* panel,
                              float* scores) {
  const float *q = in.q + query * in.heads * in.dim, *w = in.w + query * in.heads;
  for (int64_t head = 0; head < in.heads; head += kGroupHeads)
    with_count<kGroupHeads>(least(kGroupHeads, in.heads - head), [&](auto heads) {
      add_heads<heads.value>(in.dim, q + head * in.dim, w + head, panel, scores, head == 0);
    });
}

}  // namespace lethe::kernels::LETHE_ISA
