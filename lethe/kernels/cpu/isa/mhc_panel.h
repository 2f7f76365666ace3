#pragma once

#include "lethe/kernels/cpu/isa/dots.h"
#include "lethe/kernels/cpu/isa/mhc_site.h"

// Inside cpu/isa/ only: the two products of a hyper-connection site's gradient, dz fn and dz^T x,
// over some columns that lie in the first cache.
namespace lethe::kernels::LETHE_ISA {

/// The register tile of both products: tokens or rows of fn x vectors of the streams.
inline constexpr int kPanelRows = kRegisters == 32 ? 6 : 3;
inline constexpr int kPanelVecs = 4;
static_assert(kBlockTokens % kPanelRows == 0);

/// C = A B: element (row, k) of A at a[row * a_row + k * a_k], vector (k, j) of B at
/// b[k * kLanes + j * b_vec].
struct PanelProduct {
  int64_t depth;
  const float* a;
  int64_t a_row, a_k;
  const float* b;
  int64_t b_vec;
};

/// One tile: sums begin as start(row, j) and go to finish(row, j, sum).
template <int Vecs, class Start, class Finish>
LETHE_INLINE void panel_tile(const PanelProduct& p, Start&& start, Finish&& finish) {
  Vec total[kPanelRows][Vecs];
#pragma GCC unroll 6
  for (int row = 0; row < kPanelRows; ++row)
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) total[row][j] = start(row, j);
  const float *a = p.a, *b = p.b;
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_k, b += kLanes) {
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) right[j] = load(b + j * p.b_vec);
#pragma GCC unroll 6
    for (int row = 0; row < kPanelRows; ++row) {
      const Vec left = broadcast(a[row * p.a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < Vecs; ++j) total[row][j] = fma(left, right[j], total[row][j]);
    }
  }
#pragma GCC unroll 6
  for (int row = 0; row < kPanelRows; ++row)
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) finish(row, j, total[row][j]);
}

/// Some columns of one stream for the block's tokens, copied to `x` as [vector][token][lane]; fn
/// and d_fn lie as [vector][row][lane]. Passed by value: a store of floats would make the compiler
/// read it again.
struct MhcPanel {
  int64_t count, depth, padded;  // tokens; rows of fn, and rounded up
  int64_t length;                // columns
  float* x;
  const float *dz, *through_r, *fn;
  float* d_fn;
  bool is_first;
};

/// The block's share of dfn for Vecs vectors from v on, added to its partial sum.
template <int Vecs>
LETHE_INLINE void panel_d_fn(const MhcPanel p, int64_t v) {
  const bool is_first = p.is_first;
  for (int64_t row0 = 0; row0 < p.depth; row0 += kPanelRows) {
    float* to = p.d_fn + (v * p.padded + row0) * kLanes;
    panel_tile<Vecs>(
        {.depth = p.count,
         .a = p.dz + row0,
         .a_row = 1,
         .a_k = p.padded,
         .b = p.x + v * kBlockTokens * kLanes,
         .b_vec = kBlockTokens * kLanes},
        [](int, int) __attribute__((always_inline)) { return Vec{}; },
        [&](int row, int j, Vec sum) __attribute__((always_inline)) {
          float* at = to + (j * p.padded + row) * kLanes;
          store(at, is_first ? sum : load(at) + sum);
        });
  }
}

/// What reaches x through mix, in place of x, for Vecs vectors from v on.
template <int Vecs>
LETHE_INLINE void panel_d_x(const MhcPanel p, int64_t v) {
  for (int64_t t = 0; t < p.count; t += kPanelRows) {
    float* x = p.x + (v * kBlockTokens + t) * kLanes;
    const float* through_r = p.through_r + t;
    panel_tile<Vecs>(
        {.depth = p.depth,
         .a = p.dz + t * p.padded,
         .a_row = p.padded,
         .a_k = 1,
         .b = p.fn + v * p.padded * kLanes,
         .b_vec = p.padded * kLanes},
        [&](int row, int j) __attribute__((always_inline)) {
          return -through_r[row] * load(x + (j * kBlockTokens + row) * kLanes);
        },
        [&](int row, int j, Vec sum)
            __attribute__((always_inline)) { store(x + (j * kBlockTokens + row) * kLanes, sum); });
  }
}

/// f(Count<vectors>{}, first) for all vectors of the panel.
template <class F>
LETHE_INLINE void for_panel_vecs(const MhcPanel& p, F&& f) {
  const int64_t vecs = (p.length + kLanes - 1) / kLanes;
  int64_t v = 0;
  for (; v + kPanelVecs <= vecs; v += kPanelVecs) f(Count<kPanelVecs>{}, v);
  for (; v < vecs; ++v) f(Count<1>{}, v);
}

}  // namespace lethe::kernels::LETHE_ISA
