#include "lethe/ops/sinkhorn.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/sinkhorn.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/register.h"
#include "lethe/ops/sinkhorn_grad.h"

namespace lethe::ops {
namespace {

Fusable fusable("sinkhorn");

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

at::Tensor fused_forward(const at::Tensor& logits, int64_t iterations, double eps) {
  const at::Tensor dense = widen(logits).contiguous();
  const at::Tensor comb = at::empty(logits.sizes(), dense.options());
  const kernels::Parallel parallel = aten_pool();
  const int64_t n = logits.size(-1);
  const at::Tensor space = scratch(kernels::sinkhorn_scratch_floats(n, 1, parallel.threads));
  kernels::sinkhorn_forward({.parallel = parallel,
                             .count = logits.numel() / (n * n),
                             .n = n,
                             .iterations = iterations,
                             .eps = static_cast<float>(eps),
                             .logits = dense.const_data_ptr<float>(),
                             .comb = comb.data_ptr<float>(),
                             .scratch = space.data_ptr<float>()});
  return comb.to(logits.scalar_type());
}

at::Tensor fused_backward(const at::Tensor& d_comb,
                          const at::Tensor& logits,
                          int64_t iterations,
                          double eps) {
  const at::Tensor dense = logits.contiguous(), d = d_comb.contiguous();
  const at::Tensor d_logits = at::empty(logits.sizes(), dense.options());
  const kernels::Parallel parallel = aten_pool();
  const int64_t n = logits.size(-1);
  const at::Tensor space =
      scratch(kernels::sinkhorn_scratch_floats(n, iterations, parallel.threads));
  kernels::sinkhorn_backward({.parallel = parallel,
                              .count = logits.numel() / (n * n),
                              .n = n,
                              .iterations = iterations,
                              .eps = static_cast<float>(eps),
                              .logits = dense.const_data_ptr<float>(),
                              .d_comb = d.const_data_ptr<float>(),
                              .d_logits = d_logits.data_ptr<float>(),
                              .scratch = space.data_ptr<float>()});
  return d_logits;
}

at::Tensor forward(const at::Tensor& logits, int64_t iterations, double eps) {
  check(logits, iterations);
  if (fusable.runs(logits)) return fused_forward(logits, iterations, eps);
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
  record("lethe::sinkhorn",
         {logits},
         {comb},
         {logits},
         [iterations, eps, fused = fusable.would_run(logits)](const BackwardInput& in) {
           const auto function = fused ? fused_backward : sinkhorn_backward;
           const at::Tensor d = function(widen(in.grads[0]), widen(in.saved[0]), iterations, eps);
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
