#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// logits, comb [count, n, n] contiguous, as in lethe/ops/sinkhorn.h; comb may be logits.
/// scratch holds sinkhorn_scratch_floats(n, 1, threads) floats. n >= 1, iterations >= 1. Bits
/// depend on the instruction set only, and each matrix only on itself (model spec 3.1).
struct SinkhornForward {
  Parallel parallel;
  int64_t count, n, iterations;
  float eps;
  const float* logits;
  float* comb;
  float* scratch;
};

void sinkhorn_forward(const SinkhornForward& a);

/// d_logits from the logits alone: the steps are repeated, then reversed (model spec 3.4).
/// scratch holds sinkhorn_scratch_floats(n, iterations, threads) floats.
struct SinkhornBackward {
  Parallel parallel;
  int64_t count, n, iterations;
  float eps;
  const float* logits;
  const float* d_comb;
  float* d_logits;
  float* scratch;
};

void sinkhorn_backward(const SinkhornBackward& a);

/// The widest vector of any instruction set: scratch is sized for it.
inline constexpr int64_t kMostLanes = 16;

/// Enough for the matrices of one vector of tokens, their gradients, and every step between, for
/// each thread.
[[nodiscard]] constexpr int64_t sinkhorn_scratch_floats(int64_t n,
                                                        int64_t iterations,
                                                        int64_t threads) {
  return threads * kMostLanes * ((2 * iterations + 2) * n * n + 2 * iterations * n);
}

}  // namespace lethe::kernels
