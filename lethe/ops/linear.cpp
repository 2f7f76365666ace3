#include "lethe/ops/linear.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/matmul.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

Fusable fusable("linear");

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

std::vector<int64_t> output_sizes(const at::Tensor& x, const at::Tensor& w) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  return sizes;
}

// x or its gradient as a matrix, in the computing type.
at::Tensor rows_of(const at::Tensor& x, int64_t width) {
  return widen(x).reshape({x.numel() / width, width});
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& w) {
  check(x, w);
  if (!fusable.runs(x)) return reference::linear(x, w);
  return fused_matmul(rows_of(x, w.size(1)), widen(w).t())
      .reshape(output_sizes(x, w))
      .to(x.scalar_type());
}

at::Tensor meta(const at::Tensor& x, const at::Tensor& w) {
  check(x, w);
  return at::empty(output_sizes(x, w), x.options());
}

Tensors backward(const BackwardInput& in, bool fused) {
  const at::Tensor &x = in.saved[0], &w = in.saved[1];
  const at::Tensor dy = rows_of(in.grads[0], w.size(0));
  const auto matmul = fused ? fused_matmul : aten_matmul;
  at::Tensor dx, dw;
  if (in.needed[0]) dx = matmul(dy, widen(w)).reshape(x.sizes()).to(x.scalar_type());
  if (in.needed[1]) dw = matmul(dy.t(), rows_of(x, w.size(1)));
  return {dx, dw};
}

at::Tensor autograd(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = linear(x, w);
  }
  record("lethe::linear",
         {x, w},
         {y},
         {x, w},
         [fused = fusable.would_run(x)](const BackwardInput& in) { return backward(in, fused); });
  return y;
}

LETHE_REGISTER_OP(linear, "linear(Tensor x, Tensor w) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) {
  return LETHE_OP_HANDLE(linear, at::Tensor(const at::Tensor&, const at::Tensor&)).call(x, w);
}

}  // namespace lethe::ops
