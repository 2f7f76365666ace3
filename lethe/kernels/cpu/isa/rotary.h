#pragma once

#include "lethe/kernels/cpu/isa/vec_math.h"
#include "lethe/kernels/cpu/rotary.h"

// Inside cpu/isa/ only: rotation of interleaved pairs.
namespace lethe::kernels::LETHE_ISA {

/// Cosines and signed sines of one position, each once per channel, padded to whole vectors.
struct RotaryTable {
  const float* cos;
  const float* sin;
};

/// Fills the thread's table for one token. The definition rounds the angle to float32.
LETHE_INLINE RotaryTable rotary_table(const Rotary& r, int64_t token, int thread, bool inverse) {
  const int64_t floats = rotary_table_floats(r.pairs);
  float *cos = r.tables + thread * 2 * floats, *sin = cos + floats;
  if (r.pairs == 0) return {cos, sin};
  const float position = static_cast<float>(r.positions[token]);
  Vec sign;
  for (int i = 0; i < kLanes; ++i) sign[i] = (i % 2 == 0) == inverse ? 1.0F : -1.0F;
  for (int64_t m = 0; m < r.pairs; m += kLanes) {
    const int64_t left = r.pairs - m;
    const Vec angle =
        position * (left < kLanes ? load_some(r.inv_freq + m, left) : load(r.inv_freq + m));
    Vec s, c;
    sin_cos(angle, s, c);
    store(cos + 2 * m, twice_lower(c));
    store(cos + 2 * m + kLanes, twice_upper(c));
    store(sin + 2 * m, twice_lower(s) * sign);
    store(sin + 2 * m + kLanes, twice_upper(s) * sign);
  }
  return {cos, sin};
}

/// (a, b) -> (a cos - b sin, a sin + b cos) for each pair of lanes; `channel` counts from the first
/// rotated one and is even.
LETHE_INLINE Vec rotate(Vec v, const RotaryTable& table, int64_t channel) {
  return fma(swap_pairs(v), load(table.sin + channel), v * load(table.cos + channel));
}

}  // namespace lethe::kernels::LETHE_ISA
