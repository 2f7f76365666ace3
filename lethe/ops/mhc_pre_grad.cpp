#include "lethe/ops/mhc_pre_grad.h"

#include <ATen/ops/bmm.h>

#include "lethe/kernels/cpu/mhc_pre.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/sinkhorn_grad.h"

namespace lethe::ops {
namespace {

using at::Tensor;

Tensor sum_over_blocks(const Tensor& rows, int64_t n) {
  return at::stack(
      {rows.narrow(0, 0, n).sum(), rows.narrow(0, n, n).sum(), rows.narrow(0, 2 * n, n * n).sum()});
}

// Gradient at logits = mix*scale + base, [T, M]; x is the widened [T, n, D], d_u [T, D] or
// undefined.
Tensor logits_backward(const Tensor& logits,
                       const Tensor& x,
                       const Tensor& d_u,
                       const Tensor& d_post,
                       const Tensor& d_comb,
                       const MhcPreSettings& s) {
  const int64_t tokens = x.size(0), n = x.size(1);
  Tensor d = at::zeros_like(logits);
  if (d_u.defined()) {
    const Tensor d_pre = at::bmm(x, d_u.unsqueeze(-1)).squeeze(-1),
                 gate = logits.narrow(1, 0, n).sigmoid();
    d.narrow(1, 0, n).copy_(d_pre * gate * (1 - gate));
  }
  if (d_post.defined()) {
    const Tensor gate = logits.narrow(1, n, n).sigmoid();
    d.narrow(1, n, n).copy_(2 * d_post * gate * (1 - gate));
  }
  if (d_comb.defined()) {
    const Tensor mixing = logits.narrow(1, 2 * n, n * n).reshape({tokens, n, n});
    d.narrow(1, 2 * n, n * n)
        .copy_(sinkhorn_backward(d_comb, mixing, s.iterations, s.hc_eps).flatten(1));
  }
  return d;
}

}  // namespace

// Model spec 3.4: with g the gradient at the logits, dbase = sum g, dscale = sum of g*mix per
// block, dmix = g*scale, and X also feeds u directly: dX[i] += pre[i] du.
Tensors mhc_pre_backward(const BackwardInput& in, const MhcPreSettings& s) {
  const Tensor &streams = in.saved[0], &fn = in.saved[1], &base = in.saved[2], &scale = in.saved[3];
  const MhcMix mixed{in.saved[4], in.saved[5]};
  const int64_t n = streams.size(1);
  const Tensor x = widen(streams), scale_rows = mhc_scale_rows(scale, n);
  const Tensor d_u = in.grads[0].defined() ? widen(in.grads[0]) : Tensor();
  const Tensor logits = mixed.mix * scale_rows + base;
  const Tensor g = logits_backward(logits, x, d_u, in.grads[1], in.grads[2], s);
  const auto [d_x, d_fn] =
      mhc_mix_backward(g * scale_rows, mixed, x.flatten(1), fn, in.needed[0], in.needed[1]);
  Tensor d_streams, d_base, d_scale;
  if (in.needed[0]) {
    d_streams = d_x.view(streams.sizes());
    if (d_u.defined()) {
      const Tensor pre = logits.narrow(1, 0, n).sigmoid() + s.hc_eps;
      d_streams.addcmul_(pre.unsqueeze(-1), d_u.unsqueeze(1));
    }
    d_streams = d_streams.to(streams.scalar_type());
  }
  if (in.needed[2]) d_base = g.sum(0);
  if (in.needed[3]) d_scale = sum_over_blocks((g * mixed.mix).sum(0), n);
  return {d_streams, d_fn, d_base, d_scale};
}

Tensors fused_mhc_pre_backward(const BackwardInput& in, const MhcPreSettings& s) {
  const Tensor x = kernel_streams(in.saved[0]), fn = in.saved[1].contiguous(),
               base = in.saved[2].contiguous(), scale = in.saved[3].contiguous();
  const Tensor mix = in.saved[4].contiguous(), r = in.saved[5].contiguous();
  const Tensor d_u = kernel_gradient(in.grads[0]), d_post = kernel_gradient(in.grads[1]),
               d_comb = kernel_gradient(in.grads[2]);
  kernels::MhcSite site = kernel_site(x, {fn, base, scale}, s.norm_eps, s.hc_eps);
  const Tensor space =
      scratch(kernels::mhc_backward_scratch_floats(kernels::mhc_scratch_shape(site, s.iterations)));
  site.scratch = space.data_ptr<float>();
  Tensor d_streams, d_fn;
  if (in.needed[0]) d_streams = at::empty(x.sizes(), base.options());
  if (in.needed[1]) d_fn = at::empty_like(fn);
  const Tensor d_base = at::empty_like(base), d_scale = at::empty_like(scale);
  kernels::mhc_pre_backward({.site = site,
                             .iterations = s.iterations,
                             .mix = mix.const_data_ptr<float>(),
                             .r = r.const_data_ptr<float>(),
                             .d_u = data_or_null(d_u),
                             .d_post = data_or_null(d_post),
                             .d_comb = data_or_null(d_comb),
                             .d_x = mutable_data_or_null(d_streams),
                             .d_fn = mutable_data_or_null(d_fn),
                             .d_base = d_base.data_ptr<float>(),
                             .d_scale = d_scale.data_ptr<float>()});
  if (in.needed[0]) d_streams = d_streams.to(in.saved[0].scalar_type());
  return {d_streams, d_fn, d_base, d_scale};
}

}  // namespace lethe::ops
