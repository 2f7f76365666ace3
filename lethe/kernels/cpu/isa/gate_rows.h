#pragma once

#include "lethe/kernels/cpu/gate.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/vec_math.h"

// Inside cpu/isa/ only: what the gate makes of a row of logits.
namespace lethe::kernels::LETHE_ISA {
namespace {

/// sqrt(ln(1 + e^l)). e^(l/2) does not underflow where e^l does, and above l = 20 the logarithm is
/// below the rounding of l: PyTorch's threshold needs no branch.
LETHE_INLINE Vec sqrt_softplus(Vec l) {
  const IVec negative = l < 0.0F;
  const Vec root = exp(0.5F * select(negative, l, -l)), e = root * root;
  const Vec over = log1p_over(e);
  return select(negative, root, broadcast(1.0F)) * sqrt(select(negative, over, fma(e, over, l)));
}

void softmax_row(float* row, int64_t experts) {
  Vec tops = broadcast(-__builtin_inff());
  for_vectors(experts, [&](int64_t e, int64_t count) {
    tops = max(tops, count == kLanes ? load(row + e) : load_some(row + e, count, tops[0]));
  });
  const float top = largest(tops);
  Vec sums{};
  for_vectors(experts, [&](int64_t e, int64_t count) {
    put(row + e, exp(get(row + e, count) - top), count);
    sums += get(row + e, count);
  });
  const float total = sum(sums);
  for_vectors(experts,
              [&](int64_t e, int64_t count) { put(row + e, get(row + e, count) / total, count); });
}

/// Logits to scores in place; `padded` >= experts whole vectors may be written.
void score_row(ScoreFunction f, float* row, int64_t experts, int64_t padded) {
  switch (f) {
    case ScoreFunction::Softmax:
      softmax_row(row, experts);
      return;
    case ScoreFunction::Sigmoid:
      for (int64_t e = 0; e < padded; e += kLanes) store(row + e, sigmoid(load(row + e)));
      return;
    case ScoreFunction::SqrtSoftplus:
      for (int64_t e = 0; e < padded; e += kLanes) store(row + e, sqrt_softplus(load(row + e)));
      return;
  }
}

void weight_row(const GateShape& s, const float* scores, const int32_t* ids, float* weights) {
  float factor = s.scale;
  if (s.normalize) {
    float total = 0;
    for (int64_t j = 0; j < s.k; ++j) total += scores[ids[j]];
    factor /= total + s.sum_floor;
  }
  for (int64_t j = 0; j < s.k; ++j) weights[j] = scores[ids[j]] * factor;
}

}  // namespace
}  // namespace lethe::kernels::LETHE_ISA
