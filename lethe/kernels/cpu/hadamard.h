#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// y[row] = width^-1/2 H x[row], natural order; see lethe/ops/hadamard.h. The transform is its own
/// gradient. x, y [rows, width] contiguous, width a power of two; y may be x. Bits do not depend on
/// the thread count.
struct Hadamard {
  Parallel parallel;
  int64_t rows, width;
  const float* x;
  float* y;
};

void hadamard(const Hadamard& a);

}  // namespace lethe::kernels
