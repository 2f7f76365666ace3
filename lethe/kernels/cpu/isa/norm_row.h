#pragma once

#include "lethe/kernels/cpu/isa/rotary.h"
#include "lethe/kernels/cpu/isa/rows.h"

// Inside cpu/isa/ only: the RMS norm of one row, with or without a rotation behind it. A row is
// read from memory once; the further passes find it in the cache, and the last one fetches the next
// row.
namespace lethe::kernels::LETHE_ISA {

/// y = rotate(weight * x * rsqrt(mean(x^2) + eps)), the channels from `kept` on being rotated.
struct NormRow {
  int64_t width, kept;
  float eps;
  const float* weight;  // [width]; read when Weighted
  RotaryTable table;    // of the row's token; not read when kept == width
};

/// rsqrt(mean(x^2) + eps).
LETHE_INLINE float inverse_rms(const float* x, int64_t width, float eps) {
  const float squares = sum_vectors(width, [&](int64_t i, int64_t count, Vec part) {
    const Vec v = get(x + i, count);
    return fma(v, v, part);
  });
  return 1.0F / __builtin_sqrtf(squares / static_cast<float>(width) + eps);
}

/// f<rotated>(i, count) for each vector of the row; none straddles the first rotated channel.
template <class F>
LETHE_INLINE void for_channels(const NormRow& n, F&& f) {
  for_vectors(n.kept, [&](int64_t i, int64_t count) { f.template operator()<false>(i, count); });
  for_vectors(n.width - n.kept,
              [&](int64_t i, int64_t count) { f.template operator()<true>(n.kept + i, count); });
}

template <bool Weighted>
LETHE_INLINE Vec weight_at(const NormRow& n, int64_t i, int64_t count) {
  if constexpr (Weighted) return get(n.weight + i, count);
  return broadcast(1.0F);
}

/// y may be x.
template <bool Weighted>
LETHE_INLINE void norm_row_forward(const NormRow& n, const float* x, float* y) {
  const float r = inverse_rms(x, n.width, n.eps);
  for_channels(n, [&]<bool Rotated>(int64_t i, int64_t count) {
    Vec v = get(x + i, count) * r;
    if constexpr (Weighted) v = v * weight_at<Weighted>(n, i, count);
    if constexpr (Rotated) v = rotate(v, n.table, i - n.kept);
    __builtin_prefetch(x + n.width + i);
    put(y + i, v, count);
  });
}

/// The gradient of the norm's own result: d_y rotated back, so n.table holds the inverse rotation.
template <bool Rotated>
LETHE_INLINE Vec normed_gradient(const NormRow& n, const float* d_y, int64_t i, int64_t count) {
  const Vec v = get(d_y + i, count);
  if constexpr (Rotated) return rotate(v, n.table, i - n.kept);
  return v;
}

/// With xh = x r, g = dy w:  d_x = r (g - xh mean(g xh)), d_weight += dy xh. d_x and d_weight may
/// be nullptr.
template <bool Weighted>
LETHE_INLINE void norm_row_backward(
    const NormRow& n, const float* x, const float* d_y, float* d_x, float* d_weight) {
  const float r = inverse_rms(x, n.width, n.eps);
  const auto product = [&]<bool Rotated>(int64_t i, int64_t count, Vec part) {
    const Vec xh = get(x + i, count) * r, dy = normed_gradient<Rotated>(n, d_y, i, count);
    if (d_weight != nullptr) put(d_weight + i, fma(dy, xh, get(d_weight + i, count)), count);
    return fma(dy * weight_at<Weighted>(n, i, count), xh, part);
  };
  float inner = sum_vectors(n.kept, [&](int64_t i, int64_t count, Vec part) {
    return product.template operator()<false>(i, count, part);
  });
  if (n.kept < n.width)
    inner += sum_vectors(n.width - n.kept, [&](int64_t i, int64_t count, Vec part) {
      return product.template operator()<true>(n.kept + i, count, part);
    });
  if (d_x == nullptr) return;
  const Vec mean = broadcast(inner / static_cast<float>(n.width));
  for_channels(n, [&]<bool Rotated>(int64_t i, int64_t count) {
    const Vec xh = get(x + i, count) * r, dy = normed_gradient<Rotated>(n, d_y, i, count);
    __builtin_prefetch(x + n.width + i);
    __builtin_prefetch(d_y + n.width + i);
    put(d_x + i, fnma(xh, mean, dy * weight_at<Weighted>(n, i, count)) * r, count);
  });
}

/// Partial sums of a row: part p begins at first + p * stride.
struct PartialRows {
  const float* first;
  int64_t stride;
};

/// total[width] = the partial sums added in order, several columns to a task.
LETHE_INLINE void add_partials(
    const Parallel& parallel, PartialRows partials, int64_t parts, int64_t width, float* total) {
  constexpr int64_t kColumns = 1024;
  parallel((width + kColumns - 1) / kColumns, [&](int64_t task, int) {
    const int64_t begin = task * kColumns, left = width - begin;
    for_vectors(left < kColumns ? left : kColumns, [&](int64_t i, int64_t count) {
      Vec sum{};
      for (int64_t part = 0; part < parts; ++part)
        sum += get(partials.first + part * partials.stride + begin + i, count);
      put(total + begin + i, sum, count);
    });
  });
}

}  // namespace lethe::kernels::LETHE_ISA
