#include "lethe/ops/cross_entropy_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "lethe/base/documents.h"
#include "lethe/kernels/cpu/cross_entropy.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/logit_chunks.h"

namespace lethe::ops {
namespace {

// Turns logits [n,V] into their gradient in place: (softmax - onehot(label)) * d_loss, 0 in
// uncounted rows.
void logits_gradient(at::Tensor& logits,
                     const at::Tensor& lse,
                     const at::Tensor& labels,
                     const at::Tensor& d_loss) {
  logits.sub_(lse.unsqueeze(1)).exp_();
  const at::Tensor label_column = labels.clamp_min(0).unsqueeze(1);
  logits.scatter_(1, label_column, logits.gather(1, label_column) - 1);
  logits.mul_(d_loss).masked_fill_((labels == kIgnoredLabel).unsqueeze(1), 0);
}

void fused_logits_gradient(at::Tensor& logits,
                           const at::Tensor& lse,
                           const at::Tensor& labels,
                           const at::Tensor& d_loss) {
  kernels::cross_entropy_backward({.parallel = aten_pool(),
                                   .rows = logits.size(0),
                                   .vocab = logits.size(1),
                                   .ignored = kIgnoredLabel,
                                   .d_loss = d_loss.item<float>(),
                                   .labels = labels.const_data_ptr<int64_t>(),
                                   .lse = lse.const_data_ptr<float>(),
                                   .logits = logits.data_ptr<float>()});
}

}  // namespace

Tensors cross_entropy_backward(const BackwardInput& in, int64_t chunk_tokens, bool fused) {
  const at::Tensor &hidden = in.saved[0], &lse = in.saved[3];
  const at::Tensor head = widen(in.saved[1]), labels = in.saved[2].contiguous();
  at::Tensor d_hidden, d_head;
  if (in.needed[0]) d_hidden = at::empty(hidden.sizes(), hidden.options());
  if (in.needed[1]) d_head = at::zeros(head.sizes(), head.options());
  const auto to_gradient = fused ? fused_logits_gradient : logits_gradient;
  const MatmulInto matmul = fused ? fused_matmul_into : aten_matmul_into;
  for_logit_chunks(
      hidden, head, chunk_tokens, matmul, [&](const LogitChunk& chunk, at::Tensor& logits) {
        to_gradient(logits, chunk.of(lse), chunk.of(labels), in.grads[0]);
        if (in.needed[0]) matmul(chunk.of(d_hidden), logits, head, /*add=*/false);
        if (in.needed[1]) matmul(d_head, logits.t(), chunk.of(hidden), /*add=*/true);
      });
  return {d_hidden, d_head, at::Tensor()};
}

}  // namespace lethe::ops
