#include "lethe/ops/mhc_pre.h"

#include <ATen/ops/bmm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/sinkhorn.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> mhc_pre(
    const at::Tensor& streams,
    const at::Tensor& fn,
    const at::Tensor& base,
    const at::Tensor& scale,
    int64_t iterations,
    double norm_eps,
    double hc_eps) {
  const int64_t tokens = streams.size(0), n = streams.size(1);
  const at::Tensor wide = widen(streams);
  const auto [mix, r] = mhc_mix(wide.flatten(1), fn, norm_eps);
  const at::Tensor logits = mix * mhc_scale_rows(scale, n) + base;
  const at::Tensor pre = logits.narrow(1, 0, n).sigmoid() + hc_eps;
  const at::Tensor post = 2 * logits.narrow(1, n, n).sigmoid();
  const at::Tensor comb = reference::sinkhorn(
      logits.narrow(1, 2 * n, n * n).reshape({tokens, n, n}), iterations, hc_eps);
  const at::Tensor u = at::bmm(pre.unsqueeze(1), wide).squeeze(1);
  return {u.to(streams.scalar_type()), post, comb, pre, mix, r};
}

}  // namespace lethe::ops::reference
