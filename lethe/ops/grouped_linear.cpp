#include "lethe/ops/grouped_linear.h"

#include <ATen/ops/bmm.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

void check(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  LETHE_CHECK(ConfigError,
              groups >= 1,
              "grouped_linear: groups must be >= 1, got {}; it is o_groups",
              groups);
  LETHE_CHECK(
      ShapeError,
      w.dim() == 2 && w.size(1) >= 1 && w.size(0) >= groups && w.size(0) % groups == 0,
      "grouped_linear: w must be [G*R,K] with G = {}, got {}; each group owns a block of rows",
      groups,
      shape_text(w));
  LETHE_CHECK(ShapeError,
              o.dim() == 2 && o.size(1) == groups * w.size(1),
              "grouped_linear: o must be [T,G*K] with G*K = {}, got {}; flatten the heads first",
              groups * w.size(1),
              shape_text(o));
  LETHE_CHECK(
      DtypeError,
      o.is_floating_point() && w.is_floating_point() && compute_dtype(o) == compute_dtype(w),
      "grouped_linear: o and w must be floating and both or neither float64, got {} and {}; cast "
      "one of them",
      dtype_text(o),
      dtype_text(w));
}

at::Tensor forward(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  check(o, w, groups);
  return reference::grouped_linear(o, w, groups);
}

at::Tensor meta(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  check(o, w, groups);
  return at::empty({o.size(0), w.size(0)}, o.options());
}

// Per group g: do[g] = dy[g] w[g],  dw[g] = dy[g]^T o[g].
Tensors backward(const BackwardInput& in, int64_t groups) {
  const at::Tensor &o = in.saved[0], &w = in.saved[1];
  const at::Tensor dy =
      widen(in.grads[0]).unflatten(1, {groups, w.size(0) / groups}).transpose(0, 1);
  at::Tensor d_o, dw;
  if (in.needed[0]) {
    const at::Tensor maps = widen(w).unflatten(0, {groups, w.size(0) / groups});
    d_o = at::bmm(dy, maps).transpose(0, 1).flatten(1).to(o.scalar_type());
  }
  if (in.needed[1]) {
    const at::Tensor by_group = widen(o).unflatten(1, {groups, w.size(1)}).transpose(0, 1);
    dw = at::bmm(dy.transpose(1, 2), by_group).flatten(0, 1);
  }
  return {d_o, dw};
}

at::Tensor autograd(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = grouped_linear(o, w, groups);
  }
  record("lethe::grouped_linear", {o, w}, {y}, {o, w}, [groups](const BackwardInput& in) {
    return backward(in, groups);
  });
  return y;
}

LETHE_REGISTER_OP(grouped_linear,
                  "grouped_linear(Tensor o, Tensor w, int groups) -> Tensor",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor grouped_linear(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  return LETHE_OP_HANDLE(grouped_linear, at::Tensor(const at::Tensor&, const at::Tensor&, int64_t))
      .call(o, w, groups);
}

}  // namespace lethe::ops
