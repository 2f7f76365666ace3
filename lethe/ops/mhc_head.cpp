#include "lethe/ops/mhc_head.h"

#include <ATen/ops/bmm.h>

#include "lethe/core/node.h"
#include "lethe/kernels/cpu/mhc_head.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

Fusable fusable("mhc_head");

void check(const Tensor& streams, const MhcParameters& p) {
  check_streams("mhc_head", streams);
  check_mhc_parameters("mhc_head", streams, p, streams.size(1), 1);
}

Outputs fused_forward(const Tensor& streams,
                      const MhcParameters& p,
                      double norm_eps,
                      double hc_eps) {
  const Tensor x = kernel_streams(streams), fn = p.fn.contiguous(), base = p.base.contiguous(),
               scale = p.scale.contiguous();
  kernels::MhcSite site = kernel_site(x, {fn, base, scale}, norm_eps, hc_eps);
  const Tensor y = at::empty({site.tokens, site.width}, base.options()),
               mix = at::empty({site.tokens, site.rows}, base.options()),
               r = at::empty({site.tokens, 1}, base.options());
  const Tensor space =
      scratch(kernels::mhc_forward_scratch_floats(kernels::mhc_scratch_shape(site, 0)));
  site.scratch = space.data_ptr<float>();
  kernels::mhc_head_forward({.site = site,
                             .y = y.data_ptr<float>(),
                             .mix = mix.data_ptr<float>(),
                             .r = r.data_ptr<float>()});
  return {y.to(streams.scalar_type()), mix, r};
}

Outputs forward(const Tensor& streams,
                const Tensor& fn,
                const Tensor& base,
                const Tensor& scale,
                double norm_eps,
                double hc_eps) {
  check(streams, {fn, base, scale});
  if (fusable.runs(streams)) return fused_forward(streams, {fn, base, scale}, norm_eps, hc_eps);
  return reference::mhc_head(streams, fn, base, scale, norm_eps, hc_eps);
}

Outputs meta(const Tensor& streams,
             const Tensor& fn,
             const Tensor& base,
             const Tensor& scale,
             double,
             double) {
  check(streams, {fn, base, scale});
  const int64_t tokens = streams.size(0);
  const auto options = streams.options().dtype(compute_dtype(streams));
  return {at::empty({tokens, streams.size(2)}, streams.options()),
          at::empty({tokens, streams.size(1)}, options),
          at::empty({tokens, 1}, options)};
}

// With s = sigmoid(mix*scale + base), a = s + eps:  g = <dy, X[i]> s (1-s),  dbase = sum g,
// dscale = sum g*mix,  dmix = g*scale,  and directly dX[i] += a[i] dy.
Tensors backward(const BackwardInput& in, double hc_eps) {
  const Tensor &streams = in.saved[0], &fn = in.saved[1], &base = in.saved[2], &scale = in.saved[3];
  const MhcMix mixed{in.saved[4], in.saved[5]};
  const Tensor x = widen(streams), d_y = widen(in.grads[0]);
  const Tensor gate = (mixed.mix * scale + base).sigmoid();
  const Tensor g = at::bmm(x, d_y.unsqueeze(-1)).squeeze(-1) * gate * (1 - gate);
  const auto [d_x, d_fn] =
      mhc_mix_backward(g * scale, mixed, x.flatten(1), fn, in.needed[0], in.needed[1]);
  Tensor d_streams, d_base, d_scale;
  if (in.needed[0]) {
    d_streams = d_x.view(streams.sizes()).addcmul_((gate + hc_eps).unsqueeze(-1), d_y.unsqueeze(1));
    d_streams = d_streams.to(streams.scalar_type());
  }
  if (in.needed[2]) d_base = g.sum(0);
  if (in.needed[3]) d_scale = (g * mixed.mix).sum().reshape({1});
  return {d_streams, d_fn, d_base, d_scale};
}

Tensors fused_backward(const BackwardInput& in, double hc_eps) {
  const Tensor x = kernel_streams(in.saved[0]), fn = in.saved[1].contiguous(),
               base = in.saved[2].contiguous(), scale = in.saved[3].contiguous();
  const Tensor mix = in.saved[4].contiguous(), r = in.saved[5].contiguous();
  const Tensor d_y = kernel_gradient(in.grads[0]);
  kernels::MhcSite site = kernel_site(x, {fn, base, scale}, /*norm_eps=*/0, hc_eps);
  const Tensor space =
      scratch(kernels::mhc_backward_scratch_floats(kernels::mhc_scratch_shape(site, 0)));
  site.scratch = space.data_ptr<float>();
  Tensor d_streams, d_fn;
  if (in.needed[0]) d_streams = at::empty(x.sizes(), base.options());
  if (in.needed[1]) d_fn = at::empty_like(fn);
  const Tensor d_base = at::empty_like(base), d_scale = at::empty_like(scale);
  kernels::mhc_head_backward({.site = site,
                              .mix = mix.const_data_ptr<float>(),
                              .r = r.const_data_ptr<float>(),
                              .d_y = d_y.const_data_ptr<float>(),
                              .d_x = mutable_data_or_null(d_streams),
                              .d_fn = mutable_data_or_null(d_fn),
                              .d_base = d_base.data_ptr<float>(),
                              .d_scale = d_scale.data_ptr<float>()});
  if (in.needed[0]) d_streams = d_streams.to(in.saved[0].scalar_type());
  return {d_streams, d_fn, d_base, d_scale};
}

const auto& handle() {
  return LETHE_OP_HANDLE(
      mhc_head,
      Outputs(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, double));
}

Outputs autograd(const Tensor& streams,
                 const Tensor& fn,
                 const Tensor& base,
                 const Tensor& scale,
                 double norm_eps,
                 double hc_eps) {
  Outputs out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = handle().call(streams, fn, base, scale, norm_eps, hc_eps);
  }
  const auto& [y, mix, r] = out;
  record("lethe::mhc_head",
         {streams, fn, base, scale},
         {y},
         {streams, fn, base, scale, mix, r},
         [hc_eps, fused = fusable.would_run(streams)](const BackwardInput& in) {
           return fused ? fused_backward(in, hc_eps) : backward(in, hc_eps);
         });
  return out;
}

LETHE_REGISTER_OP(mhc_head,
                  "mhc_head(Tensor streams, Tensor fn, Tensor base, Tensor scale, float norm_eps, "
                  "float hc_eps) -> "
                  "(Tensor y, Tensor mix, Tensor r)",
                  forward,
                  meta,
                  autograd)

}  // namespace

Tensor mhc_head(const Tensor& streams,
                const Tensor& fn,
                const Tensor& base,
                const Tensor& scale,
                double norm_eps,
                double hc_eps) {
  return std::get<0>(handle().call(streams, fn, base, scale, norm_eps, hc_eps));
}

}  // namespace lethe::ops
