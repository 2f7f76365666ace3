#include "lethe/ops/cross_entropy.h"

#include <algorithm>

#include <ATen/ops/mm.h>

#include "lethe/base/documents.h"
#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(const at::Tensor& hidden,
                                                             const at::Tensor& head,
                                                             const at::Tensor& labels,
                                                             int64_t chunk_tokens) {
  const int64_t tokens = hidden.size(0);
  const at::Tensor wide_head = widen(head);
  at::Tensor token_loss = at::empty({tokens}, hidden.options()),
             lse = at::empty({tokens}, hidden.options());
  // The one buffer of logits; everything below works on it in place.
  const at::Tensor buffer =
      at::empty({std::min(tokens, chunk_tokens), head.size(0)}, hidden.options());
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    at::Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, hidden.narrow(0, begin, count), wide_head.t());
    const at::Tensor chunk_labels = labels.narrow(0, begin, count);
    const at::Tensor largest = logits.amax(1, /*keepdim=*/true);
    logits.sub_(largest);
    const at::Tensor of_label = logits.gather(1, chunk_labels.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor log_sum = logits.exp_().sum(1).log_();
    lse.narrow(0, begin, count).copy_(log_sum + largest.squeeze(1));
    token_loss.narrow(0, begin, count)
        .copy_((log_sum - of_label).masked_fill_(chunk_labels == kIgnoredLabel, 0));
  }
  return {token_loss.sum(), token_loss, lse};
}

}  // namespace lethe::ops::reference
