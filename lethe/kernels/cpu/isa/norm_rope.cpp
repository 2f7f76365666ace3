#include "lethe/kernels/cpu/norm_rope.h"

#include "lethe/kernels/cpu/isa/norm_row.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

template <class Arguments>
LETHE_INLINE NormRow row_of(const Arguments& a, const RotaryTable& table) {
  return {.width = a.width,
          .kept = a.width - 2 * a.rotary.pairs,
          .eps = a.eps,
          .weight = a.weight,
          .table = table};
}

template <bool Weighted>
LETHE_INLINE void forward_token(const NormRopeForward& a, int64_t token, int thread) {
  const NormRow n = row_of(a, rotary_table(a.rotary, token, thread, /*inverse=*/false));
  for (int64_t row = token * a.heads; row < (token + 1) * a.heads; ++row)
    norm_row_forward<Weighted>(n, a.x + row * a.width, a.y + row * a.width);
}

template <bool Weighted>
LETHE_INLINE void backward_token(const NormRopeBackward& a,
                                 int64_t token,
                                 int thread,
                                 float* d_weight) {
  const NormRow n = row_of(a, rotary_table(a.rotary, token, thread, /*inverse=*/true));
  for (int64_t row = token * a.heads; row < (token + 1) * a.heads; ++row) {
    float* d_x = a.d_x == nullptr ? nullptr : a.d_x + row * a.width;
    norm_row_backward<Weighted>(n, a.x + row * a.width, a.d_y + row * a.width, d_x, d_weight);
  }
}

template <bool Weighted>
void backward(const NormRopeBackward& a) {
  if (a.d_weight == nullptr) {
    for_rows(a.parallel, a.tokens, a.heads * a.width, [&](int64_t token, int thread) {
      backward_token<Weighted>(a, token, thread, nullptr);
    });
    return;
  }
  // One task per partial sum, and the sums added in order: the bits do not know the threads.
  const int64_t step = (a.tokens + kNormRopePartials - 1) / kNormRopePartials;
  a.parallel(kNormRopePartials, [&](int64_t part, int thread) {
    float* d_weight = a.partials + part * a.width;
    for (int64_t i = 0; i < a.width; ++i) d_weight[i] = 0;
    const int64_t end = (part + 1) * step < a.tokens ? (part + 1) * step : a.tokens;
    for (int64_t token = part * step; token < end; ++token)
      backward_token<Weighted>(a, token, thread, d_weight);
  });
  add_partials(a.parallel, {a.partials, a.width}, kNormRopePartials, a.width, a.d_weight);
}

}  // namespace

void norm_rope_forward(const NormRopeForward& a) {
  for_rows(a.parallel, a.tokens, a.heads * a.width, [&](int64_t token, int thread) {
    if (a.weight == nullptr)
      forward_token<false>(a, token, thread);
    else
      forward_token<true>(a, token, thread);
  });
}

void norm_rope_backward(const NormRopeBackward& a) {
  if (a.weight == nullptr)
    backward<false>(a);
  else
    backward<true>(a);
}

}  // namespace lethe::kernels::LETHE_ISA
