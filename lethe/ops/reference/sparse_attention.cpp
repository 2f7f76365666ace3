#include "lethe/ops/sparse_attention.h"

#include <ATen/ops/maximum.h>

#include "lethe/ops/attention_keys.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor> sparse_attention_gather(const AttentionInputs& inputs,
                                                           const AttentionRule& rule) {
  const at::Tensor& q = inputs.q;
  const Documents documents = documents_of("sparse_attention", inputs.cu_seqlens, q.size(0));
  at::Tensor o = at::empty(q.sizes(), q.options());
  at::Tensor lse_with_sink = at::empty({q.size(0), q.size(1)}, q.options());
  for (const QueryBlock& block : attention_blocks(documents, inputs, rule)) {
    const AttentionKeys keys(inputs, rule, block);
    const at::Tensor logits = keys.logits(block_rows(q, block), rule.scale);
    // Relative to the largest logit, not to lse: exp(z - lse) would carry the rounding of lse.
    const at::Tensor largest = at::maximum(logits.amax(2), inputs.sink);
    const at::Tensor e = (logits - largest.unsqueeze(2)).exp_();
    const at::Tensor sum = e.sum(2) + (inputs.sink - largest).exp();
    block_rows(o, block).copy_(keys.weighted(e) / sum.unsqueeze(2));
    block_rows(lse_with_sink, block).copy_(largest + sum.log());
  }
  return {o, lse_with_sink};
}

}  // namespace lethe::ops::reference
