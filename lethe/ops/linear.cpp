#include "lethe/ops/linear.h"

#include <ATen/ops/mm.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

void check(const at::Tensor& x, const at::Tensor& w) {
  LETHE_CHECK(ShapeError,
              w.dim() == 2 && w.size(0) >= 1 && w.size(1) >= 1,
              "linear: w must be [out,in], got {}",
              shape_text(w));
  LETHE_CHECK(ShapeError,
              x.dim() >= 1 && x.size(-1) == w.size(1),
              "linear: x must be [..., in] with in = {}, got {}; w is stored [out,in]",
              w.size(1),
              shape_text(x));
  LETHE_CHECK(
      DtypeError,
      x.is_floating_point() && w.is_floating_point() && compute_dtype(x) == compute_dtype(w),
      "linear: x and w must be floating and both or neither float64, got {} and {}; cast one of "
      "them",
      dtype_text(x),
      dtype_text(w));
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& w) {
  check(x, w);
  return reference::linear(x, w);
}

at::Tensor meta(const at::Tensor& x, const at::Tensor& w) {
  check(x, w);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = w.size(0);
  return at::empty(shape, x.options());
}

Tensors backward(const BackwardInput& in) {
  const at::Tensor &x = in.saved[0], &w = in.saved[1];
  const int64_t rows = x.numel() / w.size(1);
  const at::Tensor dy = widen(in.grads[0]).reshape({rows, w.size(0)});
  at::Tensor dx, dw;
  if (in.needed[0]) dx = at::mm(dy, widen(w)).reshape(x.sizes()).to(x.scalar_type());
  if (in.needed[1]) dw = at::mm(dy.t(), widen(x).reshape({rows, w.size(1)}));
  return {dx, dw};
}

at::Tensor autograd(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = linear(x, w);
  }
  record("lethe::linear", {x, w}, {y}, {x, w}, backward);
  return y;
}

LETHE_REGISTER_OP(linear, "linear(Tensor x, Tensor w) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) {
  return LETHE_OP_HANDLE(linear, at::Tensor(const at::Tensor&, const at::Tensor&)).call(x, w);
}

}  // namespace lethe::ops
