#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"
#include "lethe/kernels/cpu/rotary.h"

namespace lethe::kernels {

/// Rotates the last channels of each head; see lethe/ops/rope.h. The gradient is the same call with
/// the other direction.
/// x, y [tokens, heads, width] contiguous; y may be x. Bits do not depend on the threads.
struct Rope {
  Parallel parallel;
  int64_t tokens, heads, width;
  Rotary rotary;
  bool inverse;
  const float* x;
  float* y;
};

void rope(const Rope& a);

}  // namespace lethe::kernels
