#include "lethe/ops/sinkhorn.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"
#include "lethe/ops/sinkhorn_grad.h"

namespace lethe::ops {
namespace {

void check(const at::Tensor& logits, int64_t iterations) {
  LETHE_CHECK(ShapeError,
              logits.dim() >= 2 && logits.size(-1) == logits.size(-2) && logits.size(-1) >= 1,
              "sinkhorn: logits must be [..., n, n], got {}; they mix n streams into n",
              shape_text(logits));
  LETHE_CHECK(DtypeError,
              logits.is_floating_point(),
              "sinkhorn: logits must be floating, got {}; cast them first",
              dtype_text(logits));
  LETHE_CHECK(ConfigError,
              iterations >= 1,
              "sinkhorn: iterations must be >= 1, got {}; every release uses 20",
              iterations);
}

at::Tensor forward(const at::Tensor& logits, int64_t iterations, double eps) {
  check(logits, iterations);
  return reference::sinkhorn(logits, iterations, eps);
}

at::Tensor meta(const at::Tensor& logits, int64_t iterations, double) {
  check(logits, iterations);
  return at::empty(logits.sizes(), logits.options());
}

at::Tensor autograd(const at::Tensor& logits, int64_t iterations, double eps) {
  at::Tensor comb;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    comb = sinkhorn(logits, iterations, eps);
  }
  record("lethe::sinkhorn", {logits}, {comb}, {logits}, [iterations, eps](const BackwardInput& in) {
    const at::Tensor d = sinkhorn_backward(widen(in.grads[0]), widen(in.saved[0]), iterations, eps);
    return Tensors{d.to(in.saved[0].scalar_type())};
  });
  return comb;
}

LETHE_REGISTER_OP(sinkhorn,
                  "sinkhorn(Tensor logits, int iterations, float eps) -> Tensor",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor sinkhorn(const at::Tensor& logits, int64_t iterations, double eps) {
  return LETHE_OP_HANDLE(sinkhorn, at::Tensor(const at::Tensor&, int64_t, double))
      .call(logits, iterations, eps);
}

}  // namespace lethe::ops
