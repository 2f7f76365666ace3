#include "lethe/ops/rms_norm.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check(const at::Tensor& x, const OptionalTensor& weight) {
  LETHE_CHECK(
      ShapeError, x.dim() >= 1, "rms_norm: x must be [..., D], got a scalar; add a dimension");
  LETHE_CHECK(DtypeError,
              x.is_floating_point(),
              "rms_norm: x must be floating, got {}; cast it first",
              dtype_text(x));
  if (!weight) return;
  LETHE_CHECK(ShapeError,
              weight->dim() == 1 && weight->size(0) == x.size(-1),
              "rms_norm: weight must be [D] = [{}], got {}; is it the weight of another norm?",
              x.size(-1),
              shape_text(*weight));
  LETHE_CHECK(DtypeError,
              weight->scalar_type() == compute_dtype(x),
              "rms_norm: weight must be {}, got {}; norm weights are fp32-kept",
              c10::toString(compute_dtype(x)),
              dtype_text(*weight));
}

at::Tensor forward(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  check(x, weight);
  return reference::rms_norm(x, weight, eps);
}

at::Tensor meta(const at::Tensor& x, const OptionalTensor& weight, double) {
  check(x, weight);
  return at::empty(x.sizes(), x.options());
}

// With xh = x*r, r = rsqrt(mean(x^2)+eps), g = dy*w:  dx = r * (g - xh * mean(g*xh)),  dw =
// sum(dy*xh).
Tensors backward(const BackwardInput& in, double eps) {
  const at::Tensor &dy = in.grads[0], &x = in.saved[0], &weight = in.saved[1];
  const at::Tensor wide = widen(x), dy_wide = widen(dy);
  const at::Tensor r = (wide.square().mean(-1, true) + eps).rsqrt();
  const at::Tensor xh = wide * r;
  at::Tensor dx, dw;
  if (in.needed[0]) {
    const at::Tensor g = weight.defined() ? dy_wide * weight : dy_wide;
    dx = (r * (g - xh * (g * xh).mean(-1, true))).to(x.scalar_type());
  }
  if (weight.defined() && in.needed[1]) dw = (dy_wide * xh).reshape({-1, x.size(-1)}).sum(0);
  return {dx, dw};
}

at::Tensor autograd(const at::Tensor& x, const OptionalTensor& weight, double eps) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = rms_norm(x, weight, eps);
  }
  const at::Tensor w = weight.value_or(at::Tensor());
  record("lethe::rms_norm", {x, w}, {y}, {x, w}, [eps](const BackwardInput& in) {
    return backward(in, eps);
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
