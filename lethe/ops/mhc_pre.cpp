#include "lethe/ops/mhc_pre.h"

#include <ATen/ops/bmm.h>

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/register.h"
#include "lethe/ops/sinkhorn_grad.h"

namespace lethe::ops {
namespace {

using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

struct Settings {
  int64_t iterations;
  double norm_eps, hc_eps;
};

void check(const Tensor& streams, const MhcParameters& p, int64_t iterations) {
  check_streams("mhc_pre", streams);
  const int64_t n = streams.size(1);
  check_mhc_parameters("mhc_pre", streams, p, (2 + n) * n, 3);
  LETHE_CHECK(ConfigError,
              iterations >= 1,
              "mhc_pre: iterations must be >= 1, got {}; every release uses 20",
              iterations);
}

Outputs forward(const Tensor& streams,
                const Tensor& fn,
                const Tensor& base,
                const Tensor& scale,
                int64_t iterations,
                double norm_eps,
                double hc_eps) {
  check(streams, {fn, base, scale}, iterations);
  return reference::mhc_pre(streams, fn, base, scale, iterations, norm_eps, hc_eps);
}

Outputs meta(const Tensor& streams,
             const Tensor& fn,
             const Tensor& base,
             const Tensor& scale,
             int64_t iterations,
             double,
             double) {
  check(streams, {fn, base, scale}, iterations);
  const int64_t tokens = streams.size(0), n = streams.size(1);
  const auto options = streams.options().dtype(compute_dtype(streams));
  return {at::empty({tokens, streams.size(2)}, streams.options()),
          at::empty({tokens, n}, options),
          at::empty({tokens, n, n}, options),
          at::empty({tokens, n}, options),
          at::empty({tokens, (2 + n) * n}, options),
          at::empty({tokens, 1}, options)};
}

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
                       const Settings& s) {
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

// Model spec 3.4: with g the gradient at the logits, dbase = sum g, dscale = sum of g*mix per
// block, dmix = g*scale, and X also feeds u directly: dX[i] += pre[i] du.
Tensors backward(const BackwardInput& in, const Settings& s) {
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

const auto& handle() {
  return LETHE_OP_HANDLE(
      mhc_pre,
      Outputs(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, double, double));
}

Outputs autograd(const Tensor& streams,
                 const Tensor& fn,
                 const Tensor& base,
                 const Tensor& scale,
                 int64_t iterations,
                 double norm_eps,
                 double hc_eps) {
  Outputs out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = handle().call(streams, fn, base, scale, iterations, norm_eps, hc_eps);
  }
  const auto& [u, post, comb, pre, mix, r] = out;
  const Settings settings{iterations, norm_eps, hc_eps};
  record("lethe::mhc_pre",
         {streams, fn, base, scale},
         {u, post, comb},
         {streams, fn, base, scale, mix, r},
         [settings](const BackwardInput& in) { return backward(in, settings); });
  return out;
}

LETHE_REGISTER_OP(
    mhc_pre,
    "mhc_pre(Tensor streams, Tensor fn, Tensor base, Tensor scale, int iterations, float norm_eps, "
    "float hc_eps) -> (Tensor u, Tensor post, Tensor comb, Tensor pre, Tensor mix, Tensor r)",
    forward,
    meta,
    autograd)

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> mhc_pre(const Tensor& streams,
                                                   const Tensor& fn,
                                                   const Tensor& base,
                                                   const Tensor& scale,
                                                   int64_t iterations,
                                                   double norm_eps,
                                                   double hc_eps) {
  auto [u, post, comb, pre, mix, r] =
      handle().call(streams, fn, base, scale, iterations, norm_eps, hc_eps);
  return {u, post, comb, pre};
}

}  // namespace lethe::ops
