#include "lethe/ops/compressor.h"

#include "lethe/base/error.h"
#include "lethe/ops/compressor_fused.h"
#include "lethe/ops/compressor_grad.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/register.h"
#include "lethe/ops/rotation.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "compressor";

Fusable fusable(kOp);

Documents check(const CompressorInputs& in, int64_t ratio) {
  LETHE_CHECK(ShapeError,
              ratio >= 2,
              "compressor: ratio must be >= 2, got {}; layers of ratio 0 have no slots",
              ratio);
  const at::Tensor& kv = in.kv;
  check_real(kOp, "kv", kv);
  check_dims(kOp, "kv", "[T,coff*d]", kv, 2);
  LETHE_CHECK(ShapeError,
              kv.size(1) % pool_halves(ratio) == 0,
              "compressor: kv must be [T,2*d] for ratio 4 (overlapping windows), got width {}; use "
              "both halves",
              kv.size(1));
  const int64_t width = kv.size(1) / pool_halves(ratio);
  check_sizes(kOp, "gate", "[T,coff*d]", in.gate, kv.sizes().vec());
  check_sizes(kOp, "ape", "[ratio,coff*d]", in.ape, {ratio, kv.size(1)});
  check_sizes(kOp, "norm_weight", "[d]", in.norm_weight, {width});
  check_same_dtype(kOp, "gate", in.gate, kv);
  check_same_dtype(kOp, "ape", in.ape, kv);
  check_same_dtype(kOp, "norm_weight", in.norm_weight, kv);
  Documents documents = documents_of(kOp, in.cu_seqlens, kv.size(0));
  check_rotation({.op = kOp,
                  .positions = "slot_positions",
                  .rows = total_slots(documents, ratio),
                  .width = width},
                 in.slot_positions,
                 in.inv_freq);
  return documents;
}

at::Tensor forward(const at::Tensor& kv,
                   const at::Tensor& gate,
                   const at::Tensor& ape,
                   const at::Tensor& norm_weight,
                   const at::Tensor& slot_positions,
                   const at::Tensor& inv_freq,
                   const at::Tensor& cu_seqlens,
                   int64_t ratio,
                   double eps) {
  const CompressorInputs in{kv, gate, ape, norm_weight, slot_positions, inv_freq, cu_seqlens};
  const Documents documents = check(in, ratio);
  if (fusable.runs(kv)) return fused_compressor(in, documents, {ratio, eps});
  return reference::compressor(in, {ratio, eps});
}

at::Tensor meta(const at::Tensor& kv,
                const at::Tensor& gate,
                const at::Tensor& ape,
                const at::Tensor& norm_weight,
                const at::Tensor& slot_positions,
                const at::Tensor& inv_freq,
                const at::Tensor& cu_seqlens,
                int64_t ratio,
                double) {
  check({kv, gate, ape, norm_weight, slot_positions, inv_freq, cu_seqlens}, ratio);
  return at::empty({slot_positions.numel(), norm_weight.numel()}, kv.options());
}

at::Tensor autograd(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& norm_weight,
                    const at::Tensor& slot_positions,
                    const at::Tensor& inv_freq,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio,
                    double eps) {
  const CompressorInputs in{kv, gate, ape, norm_weight, slot_positions, inv_freq, cu_seqlens};
  const CompressorRule rule{ratio, eps};
  at::Tensor slots;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    slots = compressor(in, rule);
  }
  record("lethe::compressor",
         {kv, gate, ape, norm_weight, slot_positions, inv_freq},
         {slots},
         {kv, gate, ape, norm_weight, slot_positions, inv_freq},
         [documents = documents_of(kOp, cu_seqlens, kv.size(0)),
          rule,
          fused = fusable.would_run(kv)](const BackwardInput& grads) {
           return fused ? fused_compressor_gradient(grads, documents, rule)
                        : compressor_gradient(grads, documents, rule);
         });
  return slots;
}

LETHE_REGISTER_OP(compressor,
                  "compressor(Tensor kv, Tensor gate, Tensor ape, Tensor norm_weight, Tensor "
                  "slot_positions, Tensor inv_freq, Tensor cu_seqlens, int ratio, float eps) -> "
                  "Tensor",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor compressor(const CompressorInputs& in, const CompressorRule& rule) {
  using T = const at::Tensor&;
  return LETHE_OP_HANDLE(compressor, at::Tensor(T, T, T, T, T, T, T, int64_t, double))
      .call(in.kv,
            in.gate,
            in.ape,
            in.norm_weight,
            in.slot_positions,
            in.inv_freq,
            in.cu_seqlens,
            rule.ratio,
            rule.eps);
}

}  // namespace lethe::ops
