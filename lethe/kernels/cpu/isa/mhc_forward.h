#pragma once

#include "lethe/kernels/cpu/isa/dots.h"
#include "lethe/kernels/cpu/isa/mhc_site.h"

// Inside cpu/isa/ only: projection, gates and collapse of a block of tokens.
namespace lethe::kernels::LETHE_ISA {

/// The register tile of the product: tokens x rows of fn, with the lanes along the streams.
inline constexpr int kGroupTokens = kRegisters == 32 ? 4 : 3;
inline constexpr int kGroupRows = kRegisters == 32 ? 6 : 4;

/// Twice the tokens of a tile share what they read of fn.
inline constexpr int kSharedTokens = 2 * kGroupTokens;
static_assert(kSharedTokens <= kMhcMostShared);

/// A part of the streams: `length` floats from `column` on in each of `streams` of them, `vecs`
/// vectors in all, which lie one after the other in the packed fn.
struct MhcPiece {
  int64_t stream, column, streams, length, vecs;
};

/// What a thread keeps of its block; [token] or [row] vectors where it says lanes.
struct MhcForwardBlock {
  int64_t padded, panel_floats;
  float *sums, *squares;  // [kBlockTokens, padded] and [kBlockTokens] vectors
  float *mix, *gates;     // [rows] lanes
  float* weights;         // [kBlockTokens, n]
  float* panel;           // [kSharedTokens, panel_floats]: one piece of x
};

LETHE_INLINE MhcForwardBlock forward_block(const MhcSite& s, int64_t padded, float* scratch) {
  Carve carve{scratch};
  MhcForwardBlock b{};
  b.padded = padded;
  b.panel_floats = kMhcPieceFloats + s.streams * kLanes;
  b.sums = carve.take(kBlockTokens * padded * kLanes);
  b.squares = carve.take(kBlockTokens * kLanes);
  b.mix = carve.take(s.rows * kLanes);
  b.gates = carve.take(s.rows * kLanes);
  b.weights = carve.take(kBlockTokens * s.streams);
  b.panel = carve.take(kSharedTokens * b.panel_floats);
  return b;
}

/// Copies a token's piece, whole vectors filled with zeros, and adds its squares lane by lane. In
/// place, tokens would compete for the sets of the first cache.
inline void copy_piece(
    const MhcPiece& p, const float* x, int64_t stream_stride, float* panel, float* squares) {
  constexpr int kChains = 4;
  Vec total[kChains] = {};
  for (int64_t stream = 0; stream < p.streams; ++stream, x += stream_stride) {
    int64_t i = 0;
    for (; i + kChains * kLanes <= p.length; i += kChains * kLanes, panel += kChains * kLanes)
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        const Vec v = load(x + i + c * kLanes);
        store(panel + c * kLanes, v);
        total[c] = fma(v, v, total[c]);
      }
    for (; i < p.length; i += kLanes, panel += kLanes) {
      const Vec v = get(x + i, p.length - i < kLanes ? p.length - i : kLanes);
      store(panel, v);
      total[0] = fma(v, v, total[0]);
    }
  }
  store(squares, load(squares) + ((total[0] + total[1]) + (total[2] + total[3])));
}

/// sums[token][row] += <x[token], fn[row]> over a piece, lane by lane. `ahead` is what the next
/// piece will copy: it is fetched meanwhile, a line every fourth step.
template <int Tokens>
LETHE_INLINE void add_products(int64_t vecs,
                               const MhcForwardBlock& b,
                               const float* x,
                               const float* fn,
                               float* sums,
                               const char* ahead) {
  Vec total[Tokens][kGroupRows] = {};
  for (int64_t v = 0; v < vecs; ++v, x += kLanes, fn += kGroupRows * kLanes) {
    Vec left[Tokens];
#pragma GCC unroll 4
    for (int t = 0; t < Tokens; ++t) left[t] = load(x + t * b.panel_floats);
    __builtin_prefetch(ahead, 0, 2);
    ahead += kVecBytes / 2;
#pragma GCC unroll 8
    for (int row = 0; row < kGroupRows; ++row) {
      const Vec right = load(fn + row * kLanes);
#pragma GCC unroll 4
      for (int t = 0; t < Tokens; ++t) total[t][row] = fma(left[t], right, total[t][row]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 8
    for (int row = 0; row < kGroupRows; ++row) {
      float* to = sums + (t * b.padded + row) * kLanes;
      store(to, load(to) + total[t][row]);
    }
}

/// The products of up to kSharedTokens tokens with all rows over one piece.
inline void project_piece(const MhcSite& s,
                          const MhcPiece& p,
                          const PackedFn& fn,
                          int64_t tokens,
                          const MhcForwardBlock& b,
                          float* sums,
                          const float* ahead) {
  int64_t tile = 0;
  for (int64_t group = 0; group < fn.groups; ++group)
    for (int64_t t = 0; t < tokens; t += kGroupTokens, ++tile) {
      const int64_t left = tokens - t < kGroupTokens ? tokens - t : kGroupTokens;
      const float* next =
          ahead + tile / 2 % kSharedTokens * s.token_stride + tile % 2 * p.length / 2;
      with_count(
          left, [&](auto count) __attribute__((always_inline)) {
            add_products<decltype(count)::value>(
                p.vecs,
                b,
                b.panel + t * b.panel_floats,
                fn.at(group, p.stream, p.column / kLanes),
                sums + (t * b.padded + group * kGroupRows) * kLanes,
                reinterpret_cast<const char*>(next));
          });
    }
}

/// sums and squares of the block's tokens; bits do not depend on the strides of x.
inline void project_block(
    const MhcSite& s, const PackedFn& fn, const float* x, int64_t count, const MhcForwardBlock& b) {
  std::memset(b.sums, 0, sizeof(float) * kBlockTokens * b.padded * kLanes);
  std::memset(b.squares, 0, sizeof(float) * kBlockTokens * kLanes);
  const int64_t together = kMhcPieceFloats / s.width;
  const int64_t step = together > 1 ? together : 1;
  for (int64_t stream = 0; stream < s.streams; stream += step)
    for (int64_t i = 0; i < s.width; i += kMhcPieceFloats) {
      MhcPiece piece{
          .stream = stream,
          .column = i,
          .streams = s.streams - stream < step ? s.streams - stream : step,
          .length = s.width - i < kMhcPieceFloats ? s.width - i : kMhcPieceFloats,
          .vecs = 0,
      };
      piece.vecs = piece.streams * ((piece.length + kLanes - 1) / kLanes);
      const float* from = x + stream * s.stream_stride + i;
      const float* next_piece = i + kMhcPieceFloats < s.width
                                    ? from + kMhcPieceFloats
                                    : x + (stream + step) * s.stream_stride;
      for (int64_t first = 0; first < count; first += kSharedTokens) {
        const int64_t left = count - first;
        const int64_t tokens = left < kSharedTokens ? left : kSharedTokens;
        for (int64_t t = 0; t < tokens; ++t)
          copy_piece(piece,
                     from + (first + t) * s.token_stride,
                     s.stream_stride,
                     b.panel + t * b.panel_floats,
                     b.squares + (first + t) * kLanes);
        const float* ahead =
            tokens == left ? next_piece : from + (first + kSharedTokens) * s.token_stride;
        project_piece(s, piece, fn, tokens, b, b.sums + first * b.padded * kLanes, ahead);
      }
    }
}

/// to = sum over i of weights[i] x[i].
template <int N>
LETHE_INLINE void collapse_of(const MhcSite& s, const float* x, const float* weights, float* to) {
  const int64_t n = N > 0 ? N : s.streams;
  for_vectors(s.width, [&](int64_t at, int64_t count) {
    Vec total = weights[0] * get(x + at, count);
#pragma GCC unroll 4
    for (int64_t i = 1; i < n; ++i)
      total = fma(broadcast(weights[i]), get(x + i * s.stream_stride + at, count), total);
    put(to + at, total, count);
  });
}

/// Where forward writes: out [T, D], mix [T, rows], r [T].
struct MhcForwardOutputs {
  float *out, *mix, *r;
};

/// gates(first token, tokens, lanes) turns the lanes of the logits into the gates, the first n of
/// them the weights of the collapse, and writes what its operator returns.
template <class Gates>
void site_forward(const MhcSite& s, const MhcForwardOutputs& o, Gates&& gates) {
  PackedFn packed = packed_shape(s, kGroupRows);
  const int64_t padded = packed.groups * kGroupRows;
  Carve carve{s.scratch};
  packed.data = carve.take(packed.groups * packed.group_stride);
  pack_projection(s, packed);
  const int64_t own = mhc_forward_thread_floats(mhc_scratch_shape(s, 0));
  const float inverse = 1.0F / static_cast<float>(s.streams * s.width);
  s.parallel((s.tokens + kBlockTokens - 1) / kBlockTokens, [&](int64_t task, int thread) {
    const MhcForwardBlock b = forward_block(s, padded, carve.at + thread * own);
    const int64_t begin = task * kBlockTokens, left = s.tokens - begin;
    const int64_t tokens = left < kBlockTokens ? left : kBlockTokens;
    const float* x = s.x + begin * s.token_stride;
    project_block(s, packed, x, tokens, b);
    for (int64_t t = 0; t < tokens; t += kLanes) {
      const int64_t count = tokens - t < kLanes ? tokens - t : kLanes, first = begin + t;
      const float* sums = b.sums + t * padded * kLanes;
      const Vec mean = sums_of_lanes(b.squares + t * kLanes, kLanes) * inverse;
      const Vec r = 1.0F / sqrt(mean + s.norm_eps);
      for (int64_t row = 0; row < s.rows; ++row)
        store(b.mix + row * kLanes, sums_of_lanes(sums + row * kLanes, padded * kLanes) * r);
      put(o.r + first, r, count);
      from_lanes(b.mix, s.rows, count, o.mix + first * s.rows, s.rows);
      logits_of(s, b.mix, b.gates);
      gates(first, count, b.gates);
      from_lanes(b.gates, s.streams, count, b.weights + t * s.streams, s.streams);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const float *from = x + t * s.token_stride, *weights = b.weights + t * s.streams;
      float* to = o.out + (begin + t) * s.width;
      if (s.streams == 4)
        collapse_of<4>(s, from, weights, to);
      else
        collapse_of<0>(s, from, weights, to);
    }
  });
}

}  // namespace lethe::kernels::LETHE_ISA
