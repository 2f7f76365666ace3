#include "lethe/kernels/cpu/hadamard.h"

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/transpose.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

// Lane i becomes v[i] + v[i + Step], lane i + Step their difference, in groups of 2 Step lanes.
template <int Step, int... Lane>
LETHE_INLINE Vec butterfly(Vec v, Lanes<Lane...>) {
  const Vec other = __builtin_shufflevector(v, v, (Lane ^ Step)...);
  const Vec sign{((Lane & Step) ? -1.0F : 1.0F)...};
  return fma(v, sign, other);
}

/// The transform of kLanes neighbours.
template <int Step = 1>
LETHE_INLINE Vec transform_lanes(Vec v) {
  v = butterfly<Step>(v, AllLanes{});
  if constexpr (2 * Step < kLanes) v = transform_lanes<2 * Step>(v);
  return v;
}

LETHE_INLINE void transform_row(float* y, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) store(y + i, transform_lanes(load(y + i)));
  for (int64_t step = kLanes; step < width; step *= 2)
    for (int64_t begin = 0; begin < width; begin += 2 * step)
      for (int64_t i = begin; i < begin + step; i += kLanes) {
        const Vec a = load(y + i), b = load(y + i + step);
        store(y + i, a + b);
        store(y + i + step, a - b);
      }
}

// Fewer elements than a vector has lanes.
void transform_short_row(float* y, int64_t width) {
  for (int64_t step = 1; step < width; step *= 2)
    for (int64_t i = 0; i < width; ++i) {
      if ((i & step) != 0) continue;
      const float a = y[i], b = y[i + step];
      y[i] = a + b;
      y[i + step] = a - b;
    }
}

}  // namespace

void hadamard(const Hadamard& a) {
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(a.width));
  for_rows(a.parallel, a.rows, a.width, [&](int64_t row, int) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    for_vectors(a.width,
                [&](int64_t i, int64_t count) { put(y + i, get(x + i, count) * scale, count); });
    if (a.width < kLanes)
      transform_short_row(y, a.width);
    else
      transform_row(y, a.width);
  });
}

}  // namespace lethe::kernels::LETHE_ISA
