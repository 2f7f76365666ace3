#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// y[row] = weight * x[row] * rsqrt(mean(x[row]^2) + eps); see lethe/ops/rms_norm.h.
/// x, y [rows, width] contiguous; weight [width] or nullptr. y may be x.
struct RmsNormForward {
  Parallel parallel;
  int64_t rows, width;
  float eps;
  const float* x;
  const float* weight;
  float* y;
};

void rms_norm_forward(const RmsNormForward& a);

/// Rows are cut into this many partial sums of d_weight, whatever the thread count.
inline constexpr int64_t kRmsNormPartials = 32;

/// d_x like x, or nullptr; d_weight [width], or nullptr (then partials is not read).
/// partials [kRmsNormPartials, width] is scratch.
struct RmsNormBackward {
  Parallel parallel;
  int64_t rows, width;
  float eps;
  const float* x;
  const float* weight;
  const float* d_y;
  float* d_x;
  float* d_weight;
  float* partials;
};

void rms_norm_backward(const RmsNormBackward& a);

}  // namespace lethe::kernels
