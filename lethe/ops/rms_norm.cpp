#include "lethe/ops/rms_norm.h"

#include "lethe/core/node.h"
#include "lethe/kernels/cpu/rms_norm.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/norm.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kOp = "rms_norm";

Fusable fusable(kOp);

at::Tensor fused_forward(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  const at::Tensor wide = widen(x).contiguous();
  const at::Tensor w = weight ? weight->contiguous() : at::Tensor();
  at::Tensor y = at::empty(x.sizes(), wide.options());
  kernels::rms_norm_forward({.parallel = aten_pool(),
                             .rows = x.numel() / std::max<int64_t>(x.size(-1), 1),
                             .width = x.size(-1),
                             .eps = static_cast<float>(eps),
                             .x = wide.const_data_ptr<float>(),
                             .weight = data_or_null(w),
                             .y = y.data_ptr<float>()});
  return y.to(x.scalar_type());
}

at::Tensor forward(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  check_norm(kOp, x, weight);
  if (fusable.runs(x)) return fused_forward(x, weight, eps);
  return reference::rms_norm(x, weight, eps);
}

at::Tensor meta(const at::Tensor& x, const OptionalTensor& weight, double) {
  check_norm(kOp, x, weight);
  return at::empty(x.sizes(), x.options());
}

Tensors fused_backward(const BackwardInput& in, double eps) {
  const at::Tensor x = widen(in.saved[0]).contiguous(), dy = widen(in.grads[0]).contiguous();
  const at::Tensor w = in.saved[1].defined() ? in.saved[1].contiguous() : at::Tensor();
  const int64_t width = x.size(-1);
  at::Tensor dx, dw, partials;
  if (in.needed[0]) dx = at::empty(x.sizes(), x.options());
  if (w.defined() && in.needed[1]) {
    dw = at::empty({width}, x.options());
    partials = scratch(kernels::kRmsNormPartials * width);
  }
  kernels::rms_norm_backward({.parallel = aten_pool(),
                              .rows = x.numel() / std::max<int64_t>(width, 1),
                              .width = width,
                              .eps = static_cast<float>(eps),
                              .x = x.const_data_ptr<float>(),
                              .weight = data_or_null(w),
                              .d_y = dy.const_data_ptr<float>(),
                              .d_x = mutable_data_or_null(dx),
                              .d_weight = mutable_data_or_null(dw),
                              .partials = mutable_data_or_null(partials)});
  return {dx.defined() ? dx.to(in.saved[0].scalar_type()) : dx, dw};
}

at::Tensor autograd(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = rms_norm(x, weight, eps);
  }
  const at::Tensor w = weight.value_or(at::Tensor());
  record("lethe::rms_norm",
         {x, w},
         {y},
         {x, w},
         [eps, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? fused_backward(in, eps) : rms_norm_gradient(in, eps);
         });
  return y;
}

LETHE_REGISTER_OP(
    rms_norm, "rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  return LETHE_OP_HANDLE(rms_norm, at::Tensor(const at::Tensor&, const OptionalTensor&, double))
      .call(x, weight, eps);
}

}  // namespace lethe::ops
