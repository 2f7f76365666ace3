#include "lethe/ops/hadamard.h"

#include <bit>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/hadamard.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

Fusable fusable("hadamard");

void check(const at::Tensor& x) {
  LETHE_CHECK(ShapeError,
              x.dim() >= 1 && std::has_single_bit(static_cast<uint64_t>(x.size(-1))),
              "hadamard: x must be [..., d] with d a power of two, got {}; is it the indexer's "
              "head dimension?",
              shape_text(x));
  LETHE_CHECK(DtypeError,
              x.is_floating_point(),
              "hadamard: x must be floating, got {}; cast it first",
              dtype_text(x));
}

at::Tensor fused(const at::Tensor& x) {
  const at::Tensor wide = widen(x).contiguous();
  at::Tensor y = at::empty(x.sizes(), wide.options());
  kernels::hadamard({.parallel = aten_pool(),
                     .rows = x.numel() / x.size(-1),
                     .width = x.size(-1),
                     .x = wide.const_data_ptr<float>(),
                     .y = y.data_ptr<float>()});
  return y.to(x.scalar_type());
}

at::Tensor forward(const at::Tensor& x) {
  check(x);
  if (fusable.runs(x)) return fused(x);
  return reference::hadamard(x);
}

at::Tensor meta(const at::Tensor& x) {
  check(x);
  return at::empty(x.sizes(), x.options());
}

at::Tensor autograd(const at::Tensor& x) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = hadamard(x);
  }
  record("lethe::hadamard", {x}, {y}, {}, [use = fusable.would_run(x)](const BackwardInput& in) {
    return Tensors{use ? fused(in.grads[0]) : reference::hadamard(in.grads[0])};
  });
  return y;
}

LETHE_REGISTER_OP(hadamard, "hadamard(Tensor x) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor hadamard(const at::Tensor& x) {
  return LETHE_OP_HANDLE(hadamard, at::Tensor(const at::Tensor&)).call(x);
}

}  // namespace lethe::ops
