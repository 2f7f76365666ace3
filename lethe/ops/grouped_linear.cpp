#include "lethe/ops/grouped_linear.h"

#include <ATen/ops/empty.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/matmul.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

Fusable fusable("grouped_linear");

// Part g of G of a dimension.
at::Tensor part(const at::Tensor& t, int64_t dim, int64_t groups, int64_t g) {
  const int64_t size = t.size(dim) / groups;
  return t.narrow(dim, g * size, size);
}

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
  if (!fusable.runs(o)) return reference::grouped_linear(o, w, groups);
  const at::Tensor wide = widen(o), maps = widen(w);
  const at::Tensor y = at::empty({o.size(0), w.size(0)}, wide.options());
  for (int64_t g = 0; g < groups; ++g)
    fused_matmul_into(part(y, 1, groups, g),
                      part(wide, 1, groups, g),
                      part(maps, 0, groups, g).t(),
                      /*add=*/false);
  return y.to(o.scalar_type());
}

at::Tensor meta(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  check(o, w, groups);
  return at::empty({o.size(0), w.size(0)}, o.options());
}

// Per group g: do[g] = dy[g] w[g],  dw[g] = dy[g]^T o[g].
Tensors backward(const BackwardInput& in, int64_t groups, bool fused) {
  const at::Tensor &o = in.saved[0], &w = in.saved[1];
  const at::Tensor dy = widen(in.grads[0]), wide = widen(o), maps = widen(w);
  const MatmulInto matmul = fused ? fused_matmul_into : aten_matmul_into;
  at::Tensor d_o, dw;
  if (in.needed[0]) d_o = at::empty(o.sizes(), wide.options());
  if (in.needed[1]) dw = at::empty(w.sizes(), maps.options());
  for (int64_t g = 0; g < groups; ++g) {
    const at::Tensor d_part = part(dy, 1, groups, g);
    if (in.needed[0])
      matmul(part(d_o, 1, groups, g), d_part, part(maps, 0, groups, g), /*add=*/false);
    if (in.needed[1])
      matmul(part(dw, 0, groups, g), d_part.t(), part(wide, 1, groups, g), /*add=*/false);
  }
  return {d_o.defined() ? d_o.to(o.scalar_type()) : d_o, dw};
}

at::Tensor autograd(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = grouped_linear(o, w, groups);
  }
  record("lethe::grouped_linear",
         {o, w},
         {y},
         {o, w},
         [groups, fused = fusable.would_run(o)](const BackwardInput& in) {
           return backward(in, groups, fused);
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
