#include "lethe/kernels/cpu/cross_entropy.h"

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/vec_math.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

constexpr int kChains = 4;  // independent sums of a row: a maximum or a sum waits for its last step

/// f(chain, i, count) over a row, neighbouring vectors in different chains.
template <class F>
LETHE_INLINE void for_chains(int64_t width, F&& f) {
  int64_t i = 0;
  for (; i + kChains * kLanes <= width; i += kChains * kLanes)
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain)
      f(chain, i + chain * kLanes, static_cast<int64_t>(kLanes));
  for (; i < width; i += kLanes) f(0, i, width - i < kLanes ? width - i : kLanes);
}

float largest_of(const float* row, int64_t width) {
  Vec tops[kChains];
  for (Vec& top : tops) top = broadcast(row[0]);
  for_chains(width, [&](int chain, int64_t i, int64_t count) {
    tops[chain] =
        max(count == kLanes ? load(row + i) : load_some(row + i, count, row[0]), tops[chain]);
  });
  return largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

/// ln(sum(e^(row - top))); a NaN in the row gives NaN.
float log_sum_exp(const float* row, int64_t width, float top) {
  Vec sums[kChains] = {};
  for_chains(width, [&](int chain, int64_t i, int64_t count) {
    const Vec v = count == kLanes ? load(row + i) : load_some(row + i, count, -__builtin_inff());
    sums[chain] += exp(v - top);
  });
  return log(broadcast(sum((sums[0] + sums[1]) + (sums[2] + sums[3]))))[0];
}

}  // namespace

void cross_entropy_forward(const CrossEntropyForward& a) {
  for_rows(a.parallel, a.rows, a.vocab, [&](int64_t row, int) {
    const float* logits = a.logits + row * a.vocab;
    const float top = largest_of(logits, a.vocab), log_sum = log_sum_exp(logits, a.vocab, top);
    a.lse[row] = top + log_sum;
    // The large parts cancel exactly before the small one is added.
    const int64_t label = a.labels[row];
    a.token_loss[row] = label == a.ignored ? 0 : log_sum - (logits[label] - top);
  });
}

void cross_entropy_backward(const CrossEntropyBackward& a) {
  for_rows(a.parallel, a.rows, a.vocab, [&](int64_t row, int) {
    float* logits = a.logits + row * a.vocab;
    const bool counted = a.labels[row] != a.ignored;
    if (!counted) {
      __builtin_memset(logits, 0, sizeof(float) * a.vocab);
      return;
    }
    const float lse = a.lse[row];
    const float of_label = exp(broadcast(logits[a.labels[row]] - lse))[0];
    for_vectors(a.vocab, [&](int64_t i, int64_t count) {
      put(logits + i, exp(get(logits + i, count) - lse) * a.d_loss, count);
    });
    logits[a.labels[row]] = (of_label - 1.0F) * a.d_loss;
  });
}

}  // namespace lethe::kernels::LETHE_ISA
