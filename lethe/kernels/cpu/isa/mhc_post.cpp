#include "lethe/kernels/cpu/mhc_post.h"

#include "lethe/kernels/cpu/isa/dots.h"
#include "lethe/kernels/cpu/isa/rows.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

/// Columns that are mixed, then multiplied out, while they lie in the first cache.
constexpr int64_t kColumns = 512;

/// to[j] = sum over i of weights[j * w_to + i * w_from] * from[i]; `start`, where given, adds
/// start_weights[j] * start.
struct Mix {
  int64_t streams, from_stride, to_stride, w_from, w_to;
  const float *from, *weights, *start, *start_weights;
  float* to;
};

/// Vecs vectors from `at` on: each weight is read once for all of them.
template <int N, int Vecs>
LETHE_INLINE void mix_vectors(const Mix& m, int64_t at, int64_t count) {
  const int64_t n = N > 0 ? N : m.streams;
  Vec own[N > 0 ? N : 1][Vecs], start[Vecs];
#pragma GCC unroll 2
  for (int v = 0; v < Vecs; ++v) {
    if constexpr (N > 0)
      for (int i = 0; i < N; ++i)
        own[i][v] = get(m.from + i * m.from_stride + at + v * kLanes, count);
    start[v] = m.start == nullptr ? Vec{} : get(m.start + at + v * kLanes, count);
  }
#pragma GCC unroll 4
  for (int64_t j = 0; j < n; ++j) {
    const Vec first = broadcast(m.start == nullptr ? 0.0F : m.start_weights[j]);
    Vec sum[Vecs];
#pragma GCC unroll 2
    for (int v = 0; v < Vecs; ++v) sum[v] = first * start[v];
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) {
      const Vec weight = broadcast(m.weights[j * m.w_to + i * m.w_from]);
#pragma GCC unroll 2
      for (int v = 0; v < Vecs; ++v) {
        const int64_t from = i * m.from_stride + at + v * kLanes;
        sum[v] = fma(weight, N > 0 ? own[N > 0 ? i : 0][v] : get(m.from + from, count), sum[v]);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < Vecs; ++v) put(m.to + j * m.to_stride + at + v * kLanes, sum[v], count);
  }
}

template <int N>
LETHE_INLINE void mix_row(const Mix& m, int64_t width) {
  int64_t at = 0;
  for (; at + 2 * kLanes <= width; at += 2 * kLanes) mix_vectors<N, 2>(m, at, kLanes);
  for_vectors(width - at, [&](int64_t i, int64_t count) { mix_vectors<N, 1>(m, at + i, count); });
}

LETHE_INLINE void mix_streams(const Mix m, int64_t width) {
  if (m.streams == 4)
    mix_row<4>(m, width);
  else
    mix_row<0>(m, width);
}

/// sum over j of weights[j] * rows[j].
LETHE_INLINE void add_streams(
    const float* rows, int64_t stride, int64_t n, const float* weights, float* out, int64_t width) {
  for_vectors(width, [&](int64_t at, int64_t count) {
    Vec sum = weights[0] * get(rows + at, count);
    for (int64_t j = 1; j < n; ++j)
      sum = fma(broadcast(weights[j]), get(rows + j * stride + at, count), sum);
    put(out + at, sum, count);
  });
}

void backward_token(const MhcPostBackward& a, int64_t token) {
  const MhcPost& in = a.in;
  const int64_t n = in.streams, width = in.width;
  const float *g = a.d_out + token * n * width, *x = in.x + token * in.token_stride;
  const float *post = in.post + token * n, *comb = in.comb + token * n * n;
  float* d_post = a.d_post == nullptr ? nullptr : a.d_post + token * n;
  float* d_comb = a.d_comb == nullptr ? nullptr : a.d_comb + token * n * n;
  for (int64_t first = 0; first < width; first += kColumns) {
    const int64_t columns = width - first < kColumns ? width - first : kColumns;
    if (a.d_y != nullptr)
      add_streams(g + first, width, n, post, a.d_y + token * width + first, columns);
    if (a.d_x != nullptr)
      mix_streams({.streams = n,
                   .from_stride = width,
                   .to_stride = width,
                   .w_from = 1,
                   .w_to = n,
                   .from = g + first,
                   .weights = comb,
                   .start = nullptr,
                   .start_weights = nullptr,
                   .to = a.d_x + token * n * width + first},
                  columns);
    const Dots dots{
        .rows = n, .row_stride = width, .length = columns, .accumulate = first > 0, .b = g + first};
    if (d_post != nullptr) row_dots(dots, in.y + token * width + first, d_post);
    if (d_comb == nullptr) continue;
    for (int64_t i = 0; i < n; ++i)
      row_dots(dots, x + i * in.stream_stride + first, d_comb + i * n);
  }
}

}  // namespace

void mhc_post_forward(const MhcPostForward& a) {
  const MhcPost& in = a.in;
  const int64_t n = in.streams, width = in.width;
  for_rows(in.parallel, in.tokens, n * width, [&](int64_t token, int) {
    mix_streams({.streams = n,
                 .from_stride = in.stream_stride,
                 .to_stride = width,
                 .w_from = n,
                 .w_to = 1,
                 .from = in.x + token * in.token_stride,
                 .weights = in.comb + token * n * n,
                 .start = in.y + token * width,
                 .start_weights = in.post + token * n,
                 .to = a.out + token * n * width},
                width);
  });
}

void mhc_post_backward(const MhcPostBackward& a) {
  for_rows(a.in.parallel, a.in.tokens, a.in.streams * a.in.width, [&](int64_t token, int) {
    backward_token(a, token);
  });
}

}  // namespace lethe::kernels::LETHE_ISA
