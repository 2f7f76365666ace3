#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"
#include "lethe/kernels/cpu/rotary.h"

namespace lethe::kernels {

/// RMS norm of every head, then the rotation of its last channels; see lethe/ops/norm_rope.h.
/// x, y [tokens, heads, width] contiguous; weight [width] or nullptr. y may be x.
struct NormRopeForward {
  Parallel parallel;
  int64_t tokens, heads, width;
  float eps;
  Rotary rotary;
  const float* x;
  const float* weight;
  float* y;
};

void norm_rope_forward(const NormRopeForward& a);

/// Tokens are cut into this many partial sums of d_weight, whatever the thread count.
inline constexpr int64_t kNormRopePartials = 32;

/// d_x like x, or nullptr; d_weight [width], or nullptr (then partials is not read).
/// partials [kNormRopePartials, width] is scratch.
struct NormRopeBackward {
  Parallel parallel;
  int64_t tokens, heads, width;
  float eps;
  Rotary rotary;
  const float* x;
  const float* weight;
  const float* d_y;
  float* d_x;
  float* d_weight;
  float* partials;
};

void norm_rope_backward(const NormRopeBackward& a);

}  // namespace lethe::kernels
