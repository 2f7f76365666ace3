#include "lethe/ops/hadamard.h"

#include <bit>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

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

at::Tensor forward(const at::Tensor& x) {
  check(x);
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
  record("lethe::hadamard", {x}, {y}, {}, [](const BackwardInput& in) {
    return Tensors{reference::hadamard(in.grads[0])};
  });
  return y;
}

LETHE_REGISTER_OP(hadamard, "hadamard(Tensor x) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor hadamard(const at::Tensor& x) {
  return LETHE_OP_HANDLE(hadamard, at::Tensor(const at::Tensor&)).call(x);
}

}  // namespace lethe::ops
