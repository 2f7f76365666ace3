#include "lethe/ops/mhc_pre.h"

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/mhc_pre.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/mhc_mix.h"
#include "lethe/ops/mhc_pre_grad.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Fusable fusable("mhc_pre");

void check(const Tensor& streams, const MhcParameters& p, int64_t iterations) {
  check_streams("mhc_pre", streams);
  const int64_t n = streams.size(1);
  check_mhc_parameters("mhc_pre", streams, p, (2 + n) * n, 3);
  LETHE_CHECK(ConfigError,
              iterations >= 1,
              "mhc_pre: iterations must be >= 1, got {}; every release uses 20",
              iterations);
}

Outputs fused_forward(const Tensor& streams, const MhcParameters& p, const MhcPreSettings& s) {
  const Tensor x = kernel_streams(streams), fn = p.fn.contiguous(), base = p.base.contiguous(),
               scale = p.scale.contiguous();
  kernels::MhcSite site = kernel_site(x, {fn, base, scale}, s.norm_eps, s.hc_eps);
  const int64_t tokens = site.tokens, n = site.streams;
  const auto made = [&](at::IntArrayRef shape) { return at::empty(shape, base.options()); };
  const Tensor u = made({tokens, site.width}), post = made({tokens, n}),
               comb = made({tokens, n, n}), pre = made({tokens, n}),
               mix = made({tokens, site.rows}), r = made({tokens, 1});
  const Tensor space =
      scratch(kernels::mhc_forward_scratch_floats(kernels::mhc_scratch_shape(site, 0)));
  site.scratch = space.data_ptr<float>();
  kernels::mhc_pre_forward({.site = site,
                            .iterations = s.iterations,
                            .u = u.data_ptr<float>(),
                            .post = post.data_ptr<float>(),
                            .comb = comb.data_ptr<float>(),
                            .pre = pre.data_ptr<float>(),
                            .mix = mix.data_ptr<float>(),
                            .r = r.data_ptr<float>()});
  return {u.to(streams.scalar_type()), post, comb, pre, mix, r};
}

Outputs forward(const Tensor& streams,
                const Tensor& fn,
                const Tensor& base,
                const Tensor& scale,
                int64_t iterations,
                double norm_eps,
                double hc_eps) {
  check(streams, {fn, base, scale}, iterations);
  if (fusable.runs(streams))
    return fused_forward(streams, {fn, base, scale}, {iterations, norm_eps, hc_eps});
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
  const MhcPreSettings settings{iterations, norm_eps, hc_eps};
  record("lethe::mhc_pre",
         {streams, fn, base, scale},
         {u, post, comb},
         {streams, fn, base, scale, mix, r},
         [settings, fused = fusable.would_run(streams)](const BackwardInput& in) {
           return fused ? fused_mhc_pre_backward(in, settings) : mhc_pre_backward(in, settings);
         });
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
