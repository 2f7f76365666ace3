#include "lethe/ops/compressor.h"

#include <limits>

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/register.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "compress";

Documents check(const at::Tensor& kv,
                const at::Tensor& gate,
                const at::Tensor& ape,
                const at::Tensor& cu_seqlens,
                int64_t ratio) {
  LETHE_CHECK(ShapeError,
              ratio >= 2,
              "compress: ratio must be >= 2, got {}; layers of ratio 0 have no slots",
              ratio);
  check_real(kOp, "kv", kv);
  check_dims(kOp, "kv", "[T,coff*d]", kv, 2);
  LETHE_CHECK(ShapeError,
              kv.size(1) % pool_halves(ratio) == 0,
              "compress: kv must be [T,2*d] for ratio 4 (overlapping windows), got width {}; use "
              "both halves",
              kv.size(1));
  check_sizes(kOp, "gate", "[T,coff*d]", gate, kv.sizes().vec());
  check_sizes(kOp, "ape", "[ratio,coff*d]", ape, {ratio, kv.size(1)});
  check_same_dtype(kOp, "gate", gate, kv);
  check_same_dtype(kOp, "ape", ape, kv);
  return documents_of(kOp, cu_seqlens, kv.size(0));
}

at::Tensor forward(const at::Tensor& kv,
                   const at::Tensor& gate,
                   const at::Tensor& ape,
                   const at::Tensor& cu_seqlens,
                   int64_t ratio) {
  check(kv, gate, ape, cu_seqlens, ratio);
  return reference::compress(kv, gate, ape, cu_seqlens, ratio);
}

at::Tensor meta(const at::Tensor& kv,
                const at::Tensor& gate,
                const at::Tensor& ape,
                const at::Tensor& cu_seqlens,
                int64_t ratio) {
  const Documents documents = check(kv, gate, ape, cu_seqlens, ratio);
  return at::empty({total_slots(documents, ratio), kv.size(1) / pool_halves(ratio)}, kv.options());
}

at::Tensor to_tokens(const at::Tensor& windows_gradient,
                     const SlotWindows& windows,
                     const at::Tensor& like) {
  at::Tensor out = at::zeros(like.sizes(), like.options());
  return out.index_copy_(0, windows.tokens, windows_gradient.reshape({-1, like.size(1)}));
}

// With s = softmax of the gates and e = sum s*v per channel:  dv = s*de,  dgate = s*(v - e)*de.
Tensors backward(const BackwardInput& in, const Documents& documents, int64_t ratio) {
  const at::Tensor &kv = in.saved[0], &gate = in.saved[1], &ape = in.saved[2];
  const SlotWindows windows = slot_windows(documents, ratio, kv.device());
  if (windows.tokens.numel() == 0)
    return {at::zeros_like(kv), at::zeros_like(gate), at::zeros_like(ape)};
  const at::Tensor s =
      pooled_rows(gate, ape, windows, -std::numeric_limits<double>::infinity()).softmax(1);
  const at::Tensor v = pooled_rows(kv, {}, windows, 0.0);
  const at::Tensor d_v = s * in.grads[0].unsqueeze(1);
  const at::Tensor d_gate = unpool_rows(d_v * (v - (s * v).sum(1, /*keepdim=*/true)), windows);
  return {to_tokens(unpool_rows(d_v, windows), windows, kv),
          to_tokens(d_gate, windows, gate),
          d_gate.sum(0)};
}

at::Tensor autograd(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio) {
  at::Tensor e;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    e = compress(kv, gate, ape, cu_seqlens, ratio);
  }
  record("lethe::compress",
         {kv, gate, ape},
         {e},
         {kv, gate, ape},
         [documents = documents_of(kOp, cu_seqlens, kv.size(0)), ratio](const BackwardInput& in) {
           return backward(in, documents, ratio);
         });
  return e;
}

LETHE_REGISTER_OP(
    compress,
    "compress(Tensor kv, Tensor gate, Tensor ape, Tensor cu_seqlens, int ratio) -> Tensor",
    forward,
    meta,
    autograd)

}  // namespace

at::Tensor compress(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio) {
  using Signature = at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
  return LETHE_OP_HANDLE(compress, Signature).call(kv, gate, ape, cu_seqlens, ratio);
}

}  // namespace lethe::ops
