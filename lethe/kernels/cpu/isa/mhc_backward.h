#pragma once

#include "lethe/kernels/cpu/isa/dots.h"
#include "lethe/kernels/cpu/isa/mhc_panel.h"

// Inside cpu/isa/ only: the gradients of a hyper-connection site. With g the gradient at the
// logits (model spec 3.4): dmix = g scale, dz = r dmix, dfn = dz^T x, dbase = sum g,
// dscale = sum g mix, dx = dz fn - <dmix, mix> r^2 / (nD) x + weights dy.
namespace lethe::kernels::LETHE_ISA {

/// What the operators' gradients have in common; pointers as in mhc_pre.h.
struct MhcGradient {
  int64_t iterations;  // of Sinkhorn
  const float *mix, *r, *d_out;
  float *d_x, *d_fn, *d_base, *d_scale;
};

struct MhcBackwardBlock {
  int64_t padded, first, count;    // rows of fn rounded up; the block's tokens
  float *mix, *logits, *g;         // [rows] lanes
  float* steps;                    // of Sinkhorn
  float *d_weights, *weights;      // [kBlockTokens, n]
  float *dz, *through_r;           // [kBlockTokens, padded], [kBlockTokens]
  float* panel;                    // [vector][kBlockTokens][lane] of x
  float *d_fn, *d_base, *d_scale;  // partial sums: packed like fn; [rows], [scales] lanes
  bool is_first;                   // of its partial sum
};

LETHE_INLINE MhcBackwardBlock backward_block(const MhcSite& s,
                                             const MhcGradient& gradient,
                                             int64_t padded,
                                             float* scratch) {
  Carve carve{scratch};
  MhcBackwardBlock b{};
  b.padded = padded;
  b.mix = carve.take(s.rows * kLanes);
  b.logits = carve.take(s.rows * kLanes);
  b.g = carve.take(s.rows * kLanes);
  b.steps = carve.take(sinkhorn_lanes_floats(s.streams, gradient.iterations));
  b.d_weights = carve.take(kBlockTokens * s.streams);
  b.weights = carve.take(kBlockTokens * s.streams);
  b.dz = carve.take(kBlockTokens * padded);
  b.through_r = carve.take(kBlockTokens);
  b.panel = carve.take(kBlockTokens * kMhcPanelFloats);
  return b;
}

/// From the gradient at the gates of kLanes tokens to dz, the sums of base and scale, and what
/// flows through r. others(first, count, logits, g, steps) fills the rows of g behind the n
/// weights.
template <class Others>
LETHE_INLINE void gates_backward(const MhcSite& s,
                                 const MhcGradient& gradient,
                                 const MhcBackwardBlock& b,
                                 int64_t t,
                                 Others&& others) {
  const int64_t n = s.streams, first = b.first + t;
  const int64_t count = b.count - t < kLanes ? b.count - t : kLanes;
  to_lanes(gradient.mix + first * s.rows, s.rows, s.rows, count, b.mix);
  to_lanes(b.d_weights + t * n, n, n, count, b.g);
  logits_of(s, b.mix, b.logits);
  others(first, count, b.logits, b.g, b.steps);
  for (int64_t i = 0; i < n; ++i) {
    const Vec gate = sigmoid(lanes_at(b.logits, i));
    store(b.g + i * kLanes, lanes_at(b.g, i) * gate * (1.0F - gate));
    store(b.logits + i * kLanes, gate + s.hc_eps);
  }
  from_lanes(b.logits, n, count, b.weights + t * n, n);
  const Vec r = get(gradient.r + first, count);
  Vec inner{};
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t scale = scale_of(s, row);
    const Vec g = lanes_at(b.g, row), mix = lanes_at(b.mix, row), d_mix = g * s.scale[scale];
    inner = fma(d_mix, mix, inner);
    store(b.g + row * kLanes, d_mix * r);
    store(b.d_base + row * kLanes, lanes_at(b.d_base, row) + g);
    store(b.d_scale + scale * kLanes, fma(g, mix, lanes_at(b.d_scale, scale)));
  }
  from_lanes(b.g, s.rows, count, b.dz + t * b.padded, b.padded);
  put(b.through_r + t, inner * r * r / static_cast<float>(n * s.width), count);
}

/// One panel: copied, both products, and dx written once.
inline void panel_backward(const MhcSite& s,
                           const MhcGradient& gradient,
                           const MhcBackwardBlock& b,
                           const PackedFn& fn,
                           int64_t stream,
                           int64_t column) {
  const int64_t left = s.width - column;
  float* packed = fn.at(0, stream, column / kLanes);
  const MhcPanel p{.count = b.count,
                   .depth = s.rows,
                   .padded = b.padded,
                   .length = left < kMhcPanelFloats ? left : kMhcPanelFloats,
                   .x = b.panel,
                   .dz = b.dz,
                   .through_r = b.through_r,
                   .fn = packed,
                   .d_fn = b.d_fn + (packed - fn.data),
                   .is_first = b.is_first};
  const float* x = s.x + b.first * s.token_stride + stream * s.stream_stride + column;
  for (int64_t t = 0; t < p.count; ++t, x += s.token_stride)
    for_vectors(p.length, [&](int64_t i, int64_t count) {
      __builtin_prefetch(x + i + kMhcPanelFloats);
      store(p.x + i * kBlockTokens + t * kLanes, get(x + i, count));
    });
  if (gradient.d_fn != nullptr)
    for_panel_vecs(p, [&](auto vecs, int64_t v) { panel_d_fn<decltype(vecs)::value>(p, v); });
  if (gradient.d_x == nullptr) return;
  for_panel_vecs(p, [&](auto vecs, int64_t v) { panel_d_x<decltype(vecs)::value>(p, v); });
  for (int64_t t = 0; t < p.count; ++t) {
    const float* from = p.x + t * kLanes;
    float* to = gradient.d_x + ((b.first + t) * s.streams + stream) * s.width + column;
    if (gradient.d_out == nullptr) {
      for_vectors(p.length, [&](int64_t i, int64_t count) {
        put(to + i, load(from + i * kBlockTokens), count);
      });
      continue;
    }
    const float* d_out = gradient.d_out + (b.first + t) * s.width + column;
    const Vec weight = broadcast(b.weights[t * s.streams + stream]);
    for_vectors(p.length, [&](int64_t i, int64_t count) {
      put(to + i, fma(weight, get(d_out + i, count), load(from + i * kBlockTokens)), count);
    });
  }
}

template <class Others>
void block_backward(const MhcSite& s,
                    const MhcGradient& gradient,
                    const MhcBackwardBlock& b,
                    const PackedFn& fn,
                    Others&& others) {
  const int64_t n = s.streams;
  for (int64_t t = 0; t < b.count; ++t) {
    const float* x = s.x + (b.first + t) * s.token_stride;
    float* d_weights = b.d_weights + t * n;
    if (gradient.d_out != nullptr)
      row_dots({.rows = n,
                .row_stride = s.stream_stride,
                .length = s.width,
                .accumulate = false,
                .b = x},
               gradient.d_out + (b.first + t) * s.width,
               d_weights);
    else
      std::memset(d_weights, 0, sizeof(float) * n);
  }
  for (int64_t t = 0; t < b.count; t += kLanes) gates_backward(s, gradient, b, t, others);
  if (gradient.d_x == nullptr && gradient.d_fn == nullptr) return;
  for (int64_t stream = 0; stream < n; ++stream)
    for (int64_t column = 0; column < s.width; column += kMhcPanelFloats)
      panel_backward(s, gradient, b, fn, stream, column);
}

/// Partial sums of dfn to rows of fn, in their order.
inline void add_partials(
    const MhcSite& s, float* d_fn, int64_t padded, float* partials, int64_t count, int64_t stride) {
  constexpr int64_t kVecsPerTask = 16;
  const int64_t vecs = stream_vecs(s), tasks = (vecs + kVecsPerTask - 1) / kVecsPerTask;
  s.parallel(s.streams * tasks, [&](int64_t task, int) {
    const int64_t stream = task / tasks, first = task % tasks * kVecsPerTask;
    const int64_t end = first + kVecsPerTask < vecs ? first + kVecsPerTask : vecs;
    float* total = partials + (stream * vecs + first) * padded * kLanes;
    const int64_t size = (end - first) * padded;
    for (int64_t part = 1; part < count; ++part)
      for (int64_t i = 0; i < size; ++i)
        store(total + i * kLanes, lanes_at(total, i) + lanes_at(total + part * stride, i));
    for (int64_t row = 0; row < s.rows; ++row)
      for (int64_t v = first; v < end; ++v) {
        const int64_t left = s.width - v * kLanes;
        put(d_fn + (row * s.streams + stream) * s.width + v * kLanes,
            lanes_at(total, (v - first) * padded + row),
            left < kLanes ? left : kLanes);
      }
  });
}

/// All gradients of a site. Every partial sum over tokens is one task, added in order at the end:
/// the bits do not know the threads.
template <class Others>
void site_backward(const MhcSite& s, const MhcGradient& gradient, Others&& others) {
  const MhcScratchShape shape = mhc_scratch_shape(s, gradient.iterations);
  const int64_t own = mhc_backward_thread_floats(shape), slab = mhc_slab_tokens(shape);
  const int64_t count = mhc_partial_sums(shape), sums = (s.rows + s.scales) * kLanes;
  const int64_t padded = round_up(s.rows, kPanelRows);
  PackedFn packed = packed_shape(s, padded);
  const int64_t packed_size = packed.group_stride;
  Carve carve{s.scratch};
  packed.data = carve.take(packed_size);
  float* small = carve.take(count * sums);
  float* partials = carve.take(gradient.d_fn == nullptr ? 0 : count * packed_size);
  if (gradient.d_x != nullptr) pack_projection(s, packed);
  std::memset(small, 0, sizeof(float) * count * sums);
  s.parallel(count, [&](int64_t part, int thread) {
    MhcBackwardBlock b = backward_block(s, gradient, padded, carve.at + thread * own);
    b.d_fn = partials + part * packed_size;
    b.d_base = small + part * sums;
    b.d_scale = b.d_base + s.rows * kLanes;
    const int64_t begin = part * slab, end = begin + slab < s.tokens ? begin + slab : s.tokens;
    if (begin == end && gradient.d_fn != nullptr)  // no tokens at all
      std::memset(b.d_fn, 0, sizeof(float) * packed_size);
    for (b.first = begin; b.first < end; b.first += kBlockTokens) {
      b.is_first = b.first == begin;
      b.count = end - b.first < kBlockTokens ? end - b.first : kBlockTokens;
      block_backward(s, gradient, b, packed, others);
    }
  });
  for (int64_t i = 0; i < s.rows + s.scales; ++i) {
    Vec total{};
    for (int64_t part = 0; part < count; ++part) total += load(small + part * sums + i * kLanes);
    (i < s.rows ? gradient.d_base[i] : gradient.d_scale[i - s.rows]) = sum(total);
  }
  if (gradient.d_fn != nullptr)
    add_partials(s, gradient.d_fn, padded, partials, count, packed_size);
}

}  // namespace lethe::kernels::LETHE_ISA
