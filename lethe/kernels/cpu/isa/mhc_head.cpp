#include "lethe/kernels/cpu/mhc_head.h"

#include "lethe/kernels/cpu/isa/mhc_backward.h"
#include "lethe/kernels/cpu/isa/mhc_forward.h"

namespace lethe::kernels::LETHE_ISA {

void mhc_head_forward(const MhcHeadForward& a) {
  const MhcSite& s = a.site;
  site_forward(s, {.out = a.y, .mix = a.mix, .r = a.r}, [&](int64_t, int64_t, float* gates) {
    for (int64_t i = 0; i < s.rows; ++i)
      store(gates + i * kLanes, sigmoid(lanes_at(gates, i)) + s.hc_eps);
  });
}

void mhc_head_backward(const MhcHeadBackward& a) {
  const MhcGradient gradient{.iterations = 0,
                             .mix = a.mix,
                             .r = a.r,
                             .d_out = a.d_y,
                             .d_x = a.d_x,
                             .d_fn = a.d_fn,
                             .d_base = a.d_base,
                             .d_scale = a.d_scale};
  site_backward(a.site, gradient, [](int64_t, int64_t, const float*, float*, float*) {});
}

}  // namespace lethe::kernels::LETHE_ISA
