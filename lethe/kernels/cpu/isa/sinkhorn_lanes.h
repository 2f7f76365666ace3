#pragma once

#include "lethe/kernels/cpu/isa/vec_math.h"

// Inside cpu/isa/ only: Sinkhorn of kLanes matrices at once. A lane is a token: element (i, j) of
// all of them is the vector at m + (i * n + j) * kLanes. Lanes never mix.
namespace lethe::kernels::LETHE_ISA {

/// Steps of a normalisation: columns and rows in turn, columns first and last.
LETHE_INLINE int64_t sinkhorn_steps(int64_t iterations) {
  return 2 * iterations - 1;
}

/// The n sums over one axis: element k of sum s is vector s * across + k * along.
struct SinkhornAxis {
  int64_t along, across;
};

LETHE_INLINE SinkhornAxis sinkhorn_axis(int64_t step, int64_t n) {
  return step % 2 == 0 ? SinkhornAxis{n, 1} : SinkhornAxis{1, n};
}

LETHE_INLINE Vec lanes_at(const float* m, int64_t i) {
  return load(m + i * kLanes);
}

/// p = softmax of the rows of the logits; p may be logits.
LETHE_INLINE void softmax_lanes(int64_t n, const float* logits, float* p) {
  for (int64_t i = 0; i < n; ++i) {
    const float* row = logits + i * n * kLanes;
    float* out = p + i * n * kLanes;
    // NaN must reach the sum: the maximum of (new, old) is old where new is NaN.
    Vec top = lanes_at(row, 0), sum{};
    for (int64_t j = 1; j < n; ++j) top = max(lanes_at(row, j), top);
    for (int64_t j = 0; j < n; ++j) {
      const Vec e = exp(lanes_at(row, j) - top);
      store(out + j * kLanes, e);
      sum += e;
    }
    const Vec inverse = 1.0F / sum;
    for (int64_t j = 0; j < n; ++j) store(out + j * kLanes, lanes_at(out, j) * inverse);
  }
}

/// One step: y = m / (sums + eps); the n reciprocals go to `inverse` unless it is nullptr.
template <int N>
LETHE_INLINE void sinkhorn_step(
    int64_t streams, SinkhornAxis axis, float eps, const float* m, float* y, float* inverse) {
  const int64_t n = N > 0 ? N : streams;
#pragma GCC unroll 4
  for (int64_t s = 0; s < n; ++s) {
    Vec sum = lanes_at(m, s * axis.across);
#pragma GCC unroll 4
    for (int64_t k = 1; k < n; ++k) sum += lanes_at(m, s * axis.across + k * axis.along);
    const Vec factor = 1.0F / (sum + eps);
    if (inverse != nullptr) store(inverse + s * kLanes, factor);
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = s * axis.across + k * axis.along;
      store(y + at * kLanes, lanes_at(m, at) * factor);
    }
  }
}

template <int N>
LETHE_INLINE void sinkhorn_lanes_of(int64_t streams, int64_t iterations, float eps, float* m) {
  const int64_t n = N > 0 ? N : streams;
  softmax_lanes(n, m, m);
  for (int64_t i = 0; i < n * n; ++i) store(m + i * kLanes, lanes_at(m, i) + eps);
  sinkhorn_step<N>(n, {n, 1}, eps, m, m, nullptr);
  for (int64_t i = 1; i < iterations; ++i) {
    sinkhorn_step<N>(n, {1, n}, eps, m, m, nullptr);
    sinkhorn_step<N>(n, {n, 1}, eps, m, m, nullptr);
  }
}

template <int N>
LETHE_INLINE void sinkhorn_lanes_backward_of(
    int64_t streams, int64_t iterations, float eps, const float* logits, float* d, float* steps) {
  const int64_t n = N > 0 ? N : streams, matrix = n * n * kLanes,
                count = sinkhorn_steps(iterations);
  float* inverses = steps + (count + 1) * matrix;
  softmax_lanes(n, logits, steps);
  float* first = steps + matrix;
  for (int64_t i = 0; i < n * n; ++i) store(first + i * kLanes, lanes_at(steps, i) + eps);
  for (int64_t step = 0; step < count; ++step) {
    float* y = steps + (step + 1) * matrix;
    const float* m = step == 0 ? y : y - matrix;
    sinkhorn_step<N>(n, sinkhorn_axis(step, n), eps, m, y, inverses + step * n * kLanes);
  }
  for (int64_t step = count - 1; step >= 0; --step) {
    const float* y = steps + (step + 1) * matrix;
    const SinkhornAxis axis = sinkhorn_axis(step, n);
    for (int64_t s = 0; s < n; ++s) {
      Vec inner{};
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = s * axis.across + k * axis.along;
        inner = fma(lanes_at(d, at), lanes_at(y, at), inner);
      }
      const Vec factor = load(inverses + (step * n + s) * kLanes);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = s * axis.across + k * axis.along;
        store(d + at * kLanes, (lanes_at(d, at) - inner) * factor);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    const float* p = steps + i * n * kLanes;
    float* row = d + i * n * kLanes;
    Vec inner{};
    for (int64_t j = 0; j < n; ++j) inner = fma(lanes_at(row, j), lanes_at(p, j), inner);
    for (int64_t j = 0; j < n; ++j)
      store(row + j * kLanes, lanes_at(p, j) * (lanes_at(row, j) - inner));
  }
}

/// The logits at m become the normalised matrices. Four streams, as in the releases, get code of
/// their own.
inline void sinkhorn_lanes(int64_t n, int64_t iterations, float eps, float* m) {
  if (n == 4) return sinkhorn_lanes_of<4>(n, iterations, eps, m);
  sinkhorn_lanes_of<0>(n, iterations, eps, m);
}

/// Scratch of sinkhorn_lanes_backward: every matrix and every reciprocal on the way.
LETHE_INLINE int64_t sinkhorn_lanes_floats(int64_t n, int64_t iterations) {
  return 2 * iterations * (n * n + n) * kLanes;
}

/// The gradient at the normalised matrices, d, becomes the one at the logits.
inline void sinkhorn_lanes_backward(
    int64_t n, int64_t iterations, float eps, const float* logits, float* d, float* steps) {
  if (n == 4) return sinkhorn_lanes_backward_of<4>(n, iterations, eps, logits, d, steps);
  sinkhorn_lanes_backward_of<0>(n, iterations, eps, logits, d, steps);
}

/// Rows of `width` floats, one per lane, to vectors of one column each and back; lanes from `count`
/// on become 0 and are not written back.
LETHE_INLINE void to_lanes(
    const float* rows, int64_t stride, int64_t width, int64_t count, float* v) {
  for (int64_t lane = 0; lane < kLanes; ++lane)
    for (int64_t i = 0; i < width; ++i)
      v[i * kLanes + lane] = lane < count ? rows[lane * stride + i] : 0.0F;
}

LETHE_INLINE void from_lanes(
    const float* v, int64_t width, int64_t count, float* rows, int64_t stride) {
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t i = 0; i < width; ++i) rows[lane * stride + i] = v[i * kLanes + lane];
}

}  // namespace lethe::kernels::LETHE_ISA
