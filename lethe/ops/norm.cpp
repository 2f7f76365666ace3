#include "lethe/ops/norm.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/ops/compute_dtype.h"

namespace lethe::ops {

void check_norm(const char* op, const at::Tensor& x, const std::optional<at::Tensor>& weight) {
  LETHE_CHECK(
      ShapeError, x.dim() >= 1, "{}: x must be [..., D], got a scalar; add a dimension", op);
  LETHE_CHECK(DtypeError,
              x.is_floating_point(),
              "{}: x must be floating, got {}; cast it first",
              op,
              dtype_text(x));
  if (!weight) return;
  LETHE_CHECK(ShapeError,
              weight->dim() == 1 && weight->size(0) == x.size(-1),
              "{}: weight must be [D] = [{}], got {}; is it the weight of another norm?",
              op,
              x.size(-1),
              shape_text(*weight));
  LETHE_CHECK(DtypeError,
              weight->scalar_type() == compute_dtype(x),
              "{}: weight must be {}, got {}; norm weights are fp32-kept",
              op,
              c10::toString(compute_dtype(x)),
              dtype_text(*weight));
}

// With xh = x*r, r = rsqrt(mean(x^2)+eps), g = dy*w:  dx = r * (g - xh * mean(g*xh)),  dw =
// sum(dy*xh).
Tensors rms_norm_gradient(const BackwardInput& in, double eps) {
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

}  // namespace lethe::ops
