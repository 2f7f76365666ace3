#include "lethe/kernels/cpu/mhc_pre.h"

#include "lethe/kernels/cpu/isa/mhc_backward.h"
#include "lethe/kernels/cpu/isa/mhc_forward.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

/// The gradient d [.., width] of one output for these tokens, as lanes; zeros where none arrived.
LETHE_INLINE void arrived(
    const float* d, int64_t first, int64_t width, int64_t count, float* lanes) {
  to_lanes(d + first * width, width, width, d == nullptr ? 0 : count, lanes);
}

}  // namespace

void mhc_pre_forward(const MhcPreForward& a) {
  const MhcSite& s = a.site;
  const int64_t n = s.streams;
  const auto gates = [&](int64_t first, int64_t count, float* logits) {
    float *post = logits + n * kLanes, *comb = post + n * kLanes;
    for (int64_t i = 0; i < n; ++i) {
      store(logits + i * kLanes, sigmoid(lanes_at(logits, i)) + s.hc_eps);
      store(post + i * kLanes, 2.0F * sigmoid(lanes_at(post, i)));
    }
    sinkhorn_lanes(n, a.iterations, s.hc_eps, comb);
    from_lanes(logits, n, count, a.pre + first * n, n);
    from_lanes(post, n, count, a.post + first * n, n);
    from_lanes(comb, n * n, count, a.comb + first * n * n, n * n);
  };
  site_forward(s, {.out = a.u, .mix = a.mix, .r = a.r}, gates);
}

void mhc_pre_backward(const MhcPreBackward& a) {
  const MhcSite& s = a.site;
  const int64_t n = s.streams;
  const auto others =
      [&](int64_t first, int64_t count, const float* logits, float* g, float* steps) {
        const float *post = logits + n * kLanes, *comb = post + n * kLanes;
        float *d_post = g + n * kLanes, *d_comb = d_post + n * kLanes;
        arrived(a.d_post, first, n, count, d_post);
        for (int64_t i = 0; i < n; ++i) {
          const Vec gate = sigmoid(lanes_at(post, i));
          store(d_post + i * kLanes, 2.0F * lanes_at(d_post, i) * gate * (1.0F - gate));
        }
        arrived(a.d_comb, first, n * n, count, d_comb);
        if (a.d_comb != nullptr)
          sinkhorn_lanes_backward(n, a.iterations, s.hc_eps, comb, d_comb, steps);
      };
  site_backward(s,
                {.iterations = a.iterations,
                 .mix = a.mix,
                 .r = a.r,
                 .d_out = a.d_u,
                 .d_x = a.d_x,
                 .d_fn = a.d_fn,
                 .d_base = a.d_base,
                 .d_scale = a.d_scale},
                others);
}

}  // namespace lethe::kernels::LETHE_ISA
