#include "lethe/ops/norm_rope.h"

#include "lethe/core/node.h"
#include "lethe/kernels/cpu/norm_rope.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/norm.h"
#include "lethe/ops/register.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/rotation.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kOp = "norm_rope";

Fusable fusable(kOp);

void check(const at::Tensor& x,
           const OptionalTensor& weight,
           const at::Tensor& positions,
           const at::Tensor& inv_freq) {
  check_rotated_heads(kOp, x, positions, inv_freq);
  check_norm(kOp, x, weight);
}

at::Tensor fused_forward(const at::Tensor& x,
                         const OptionalTensor& weight,
                         const Rotation& rotation,
                         double eps) {
  const at::Tensor wide = widen(x).contiguous();
  const at::Tensor w = weight ? weight->contiguous() : at::Tensor();
  at::Tensor y = at::empty(x.sizes(), wide.options());
  kernels::norm_rope_forward({.parallel = aten_pool(),
                              .tokens = x.size(0),
                              .heads = heads_of(x),
                              .width = x.size(-1),
                              .eps = static_cast<float>(eps),
                              .rotary = rotation.rotary(),
                              .x = wide.const_data_ptr<float>(),
                              .weight = data_or_null(w),
                              .y = y.data_ptr<float>()});
  return y.to(x.scalar_type());
}

at::Tensor forward(const at::Tensor& x,
                   const OptionalTensor& weight,
                   const at::Tensor& positions,
                   const at::Tensor& inv_freq,
                   double eps) {
  check(x, weight, positions, inv_freq);
  if (fusable.runs(x)) return fused_forward(x, weight, {positions, inv_freq}, eps);
  return reference::norm_rope(x, weight, positions, inv_freq, eps);
}

at::Tensor meta(const at::Tensor& x,
                const OptionalTensor& weight,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                double) {
  check(x, weight, positions, inv_freq);
  return at::empty(x.sizes(), x.options());
}

Tensors backward(const BackwardInput& in, double eps) {
  const Tensors back{
      reference::rope(widen(in.grads[0]), in.saved[2], in.saved[3], /*inverse=*/true)};
  Tensors grads = rms_norm_gradient({back, in.saved, in.needed}, eps);
  grads.resize(4);
  return grads;
}

Tensors fused_backward(const BackwardInput& in, double eps) {
  const at::Tensor x = widen(in.saved[0]).contiguous(), dy = widen(in.grads[0]).contiguous();
  const at::Tensor w = in.saved[1].defined() ? in.saved[1].contiguous() : at::Tensor();
  const Rotation rotation(in.saved[2], in.saved[3]);
  at::Tensor dx, dw, partials;
  if (in.needed[0]) dx = at::empty(x.sizes(), x.options());
  if (w.defined() && in.needed[1]) {
    dw = at::empty(w.sizes(), x.options());
    partials = scratch(kernels::kNormRopePartials * w.numel());
  }
  kernels::norm_rope_backward({.parallel = aten_pool(),
                               .tokens = x.size(0),
                               .heads = heads_of(x),
                               .width = x.size(-1),
                               .eps = static_cast<float>(eps),
                               .rotary = rotation.rotary(),
                               .x = x.const_data_ptr<float>(),
                               .weight = data_or_null(w),
                               .d_y = dy.const_data_ptr<float>(),
                               .d_x = mutable_data_or_null(dx),
                               .d_weight = mutable_data_or_null(dw),
                               .partials = mutable_data_or_null(partials)});
  return {dx.defined() ? dx.to(in.saved[0].scalar_type()) : dx, dw, {}, {}};
}

at::Tensor autograd(const at::Tensor& x,
                    const OptionalTensor& weight,
                    const at::Tensor& positions,
                    const at::Tensor& inv_freq,
                    double eps) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = norm_rope(x, weight, positions, inv_freq, eps);
  }
  const at::Tensor w = weight.value_or(at::Tensor());
  record("lethe::norm_rope",
         {x, w, positions, inv_freq},
         {y},
         {x, w, positions, inv_freq},
         [eps, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? fused_backward(in, eps) : backward(in, eps);
         });
  return y;
}

LETHE_REGISTER_OP(
    norm_rope,
    "norm_rope(Tensor x, Tensor? weight, Tensor positions, Tensor inv_freq, float eps) -> Tensor",
    forward,
    meta,
    autograd)

}  // namespace

at::Tensor norm_rope(const at::Tensor& x,
                     const OptionalTensor& weight,
                     const at::Tensor& positions,
                     const at::Tensor& inv_freq,
                     double eps) {
  using Signature = at::Tensor(
      const at::Tensor&, const OptionalTensor&, const at::Tensor&, const at::Tensor&, double);
  return LETHE_OP_HANDLE(norm_rope, Signature).call(x, weight, positions, inv_freq, eps);
}

}  // namespace lethe::ops
