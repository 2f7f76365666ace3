#include "lethe/ops/compressor_grad.h"

#include <limits>

#include "lethe/ops/norm.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops {
namespace {

at::Tensor to_tokens(const at::Tensor& windows_gradient,
                     const SlotWindows& windows,
                     const at::Tensor& like) {
  at::Tensor out = at::zeros(like.sizes(), like.options());
  return out.index_copy_(0, windows.tokens, windows_gradient.reshape({-1, like.size(1)}));
}

}  // namespace

// With s = softmax of the gates and e = sum s*v per channel:  dv = s*de,  dgate = s*(v - e)*de.
Tensors compressor_gradient(const BackwardInput& in,
                            const Documents& documents,
                            const CompressorRule& rule) {
  const at::Tensor &kv = in.saved[0], &gate = in.saved[1], &ape = in.saved[2];
  const SlotWindows windows = slot_windows(documents, rule.ratio, kv.device());
  if (windows.tokens.numel() == 0)
    return {at::zeros_like(kv),
            at::zeros_like(gate),
            at::zeros_like(ape),
            at::zeros_like(in.saved[3]),
            {},
            {}};
  const at::Tensor s =
      pooled_rows(gate, ape, windows, -std::numeric_limits<double>::infinity()).softmax(1);
  const at::Tensor v = pooled_rows(kv, {}, windows, 0.0), e = (s * v).sum(1);
  const Tensors d_normed{reference::rope(in.grads[0], in.saved[4], in.saved[5], /*inverse=*/true)},
      normed{e, in.saved[3]};
  const Tensors d_e = rms_norm_gradient({d_normed, normed, {true, true}}, rule.eps);
  const at::Tensor d_v = s * d_e[0].unsqueeze(1);
  const at::Tensor d_gate = unpool_rows(d_v * (v - e.unsqueeze(1)), windows);
  return {to_tokens(unpool_rows(d_v, windows), windows, kv),
          to_tokens(d_gate, windows, gate),
          d_gate.sum(0),
          d_e[1],
          {},
          {}};
}

}  // namespace lethe::ops
