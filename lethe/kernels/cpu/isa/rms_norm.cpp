#include "lethe/kernels/cpu/rms_norm.h"

#include "lethe/kernels/cpu/isa/norm_row.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

template <class Arguments>
LETHE_INLINE NormRow row_of(const Arguments& a) {
  return {.width = a.width, .kept = a.width, .eps = a.eps, .weight = a.weight, .table = {}};
}

void backward_row(const RmsNormBackward& a, int64_t row, float* d_weight) {
  const float *x = a.x + row * a.width, *d_y = a.d_y + row * a.width;
  float* d_x = a.d_x == nullptr ? nullptr : a.d_x + row * a.width;
  if (a.weight == nullptr)
    norm_row_backward<false>(row_of(a), x, d_y, d_x, d_weight);
  else
    norm_row_backward<true>(row_of(a), x, d_y, d_x, d_weight);
}

}  // namespace

void rms_norm_forward(const RmsNormForward& a) {
  for_rows(a.parallel, a.rows, a.width, [&](int64_t row, int) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    if (a.weight == nullptr)
      norm_row_forward<false>(row_of(a), x, y);
    else
      norm_row_forward<true>(row_of(a), x, y);
  });
}

void rms_norm_backward(const RmsNormBackward& a) {
  if (a.d_weight == nullptr) {
    for_rows(a.parallel, a.rows, a.width, [&](int64_t row, int) { backward_row(a, row, nullptr); });
    return;
  }
  // One task per partial sum, and the sums added in order: the bits do not know the threads.
  const int64_t step = (a.rows + kRmsNormPartials - 1) / kRmsNormPartials;
  a.parallel(kRmsNormPartials, [&](int64_t part, int) {
    float* d_weight = a.partials + part * a.width;
    for (int64_t i = 0; i < a.width; ++i) d_weight[i] = 0;
    const int64_t end = (part + 1) * step < a.rows ? (part + 1) * step : a.rows;
    for (int64_t row = part * step; row < end; ++row) backward_row(a, row, d_weight);
  });
  add_partials(a.parallel, {a.partials, a.width}, kRmsNormPartials, a.width, a.d_weight);
}

}  // namespace lethe::kernels::LETHE_ISA
