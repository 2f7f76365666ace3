#include "lethe/ops/mhc_head.h"

#include <ATen/ops/bmm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/mhc_mix.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor, at::Tensor> mhc_head(const at::Tensor& streams,
                                                        const at::Tensor& fn,
                                                        const at::Tensor& base,
                                                        const at::Tensor& scale,
                                                        double norm_eps,
                                                        double hc_eps) {
  const at::Tensor wide = widen(streams);
  const auto [mix, r] = mhc_mix(wide.flatten(1), fn, norm_eps);
  const at::Tensor a = (mix * scale + base).sigmoid() + hc_eps;
  const at::Tensor y = at::bmm(a.unsqueeze(1), wide).squeeze(1);
  return {y.to(streams.scalar_type()), mix, r};
}

}  // namespace lethe::ops::reference
