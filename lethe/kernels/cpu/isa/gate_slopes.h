#pragma once

#include "lethe/kernels/cpu/gate_grad.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/vec_math.h"

// Inside cpu/isa/ only: what the gate's backward does with a row of gradients.
namespace lethe::kernels::LETHE_ISA {
namespace {

/// Slope of sqrt_softplus by its value s: (1 - e^-(s^2)) / (2 s), which is sigmoid(l) / (2 s).
LETHE_INLINE Vec sqrt_softplus_slope(Vec s) {
  const Vec square = s * s;
  return select(square < 1e-16F, 0.5F * s, one_minus_exp_of_minus(square) / (2.0F * s));
}

/// d_scores += the gradient that comes through the weights (lethe/ops/gate_grad.cpp).
void add_weight_gradient(const GateShape& s,
                         const float* scores,
                         const int32_t* ids,
                         const float* d_weights,
                         float* d_scores) {
  float factor = s.scale, mean = 0;
  if (s.normalize) {
    float total = 0;
    for (int64_t j = 0; j < s.k; ++j) {
      total += scores[ids[j]];
      mean += d_weights[j] * scores[ids[j]];
    }
    total += s.sum_floor;
    mean /= total;
    factor = s.scale / total;
  }
  for (int64_t j = 0; j < s.k; ++j) d_scores[ids[j]] += (d_weights[j] - mean) * factor;
}

/// Gradient of the scores to that of the logits, in place.
void slope_row(ScoreFunction f, const float* scores, float* row, int64_t experts) {
  float inner = 0;
  if (f == ScoreFunction::Softmax) {
    Vec products{};
    for_vectors(experts, [&](int64_t e, int64_t count) {
      products = fma(get(scores + e, count), get(row + e, count), products);
    });
    inner = sum(products);
  }
  for_vectors(experts, [&](int64_t e, int64_t count) {
    const Vec s = get(scores + e, count), d = get(row + e, count);
    const Vec slope = f == ScoreFunction::SqrtSoftplus ? d * sqrt_softplus_slope(s)
                      : f == ScoreFunction::Sigmoid    ? d * s * (1.0F - s)
                                                       : s * (d - inner);
    put(row + e, slope, count);
  });
}

}  // namespace
}  // namespace lethe::kernels::LETHE_ISA
