#pragma once

#include "lethe/kernels/cpu/isa/gathered_rows.h"
#include "lethe/kernels/cpu/isa/vec_math.h"

// Inside cpu/isa/ only: a softmax per head over rows that come tile by tile; heads are the lanes.
namespace lethe::kernels::LETHE_ISA {

/// sum e^z = mass * e^top per head; arrays of whole vectors.
struct HeadMass {
  float* top;
  float* mass;
};

/// x, or 0 where it is -inf: what may be subtracted from -inf.
LETHE_INLINE Vec finite_shift(Vec x) {
  return select(x == -__builtin_inff(), Vec{}, x);
}

LETHE_INLINE void reset_mass(const HeadMass& m, int64_t heads) {
  for (int64_t head = 0; head < heads; head += kLanes) {
    store(m.top + head, broadcast(-__builtin_inff()));
    store(m.mass + head, Vec{});
  }
}

/// Adds e^(scale z) of all rows; z becomes e^(scale z - top) with the new top.
LETHE_INLINE void add_mass(const HeadProducts& z, int64_t rows, float scale, const HeadMass& m) {
  for (int64_t head = 0; head < z.heads; head += kLanes) {
    const Vec before = load(m.top + head);
    Vec top = before;
    float* place = z.data + head;
    for (int64_t i = 0; i < rows; ++i) top = max(load(place + i * z.stride) * scale, top);
    const Vec shift = finite_shift(top);
    Vec sum = load(m.mass + head) * exp_below_88(before - shift);
    for (int64_t i = 0; i < rows; ++i) {
      const Vec e = exp_below_88(load(place + i * z.stride) * scale - shift);
      store(place + i * z.stride, e);
      sum += e;
    }
    store(m.top + head, top);
    store(m.mass + head, sum);
  }
}

/// z becomes e^(scale z - top).
LETHE_INLINE void exponentials(const HeadProducts& z, int64_t rows, float scale, const float* top) {
  for (int64_t head = 0; head < z.heads; head += kLanes) {
    const Vec shift = finite_shift(load(top + head));
    float* place = z.data + head;
    for (int64_t i = 0; i < rows; ++i)
      store(place + i * z.stride, exp_below_88(load(place + i * z.stride) * scale - shift));
  }
}

}  // namespace lethe::kernels::LETHE_ISA
