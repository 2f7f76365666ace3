#include "lethe/ops/sparse_attention.h"

#include <ATen/ops/maximum.h>

#include "lethe/ops/attention_keys.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/rope.h"

namespace lethe::ops::reference {

AttentionResult sparse_attention_gather(const AttentionInputs& inputs,
                                        const AttentionRule& rule,
                                        const AttentionOutput& output) {
  const at::Tensor& q = inputs.q;
  const Documents documents = documents_of("sparse_attention", inputs.cu_seqlens, q.size(0));
  at::Tensor o = at::empty(q.sizes(), q.options());
  at::Tensor lse_with_sink = at::empty({q.size(0), q.size(1)}, q.options());
  const at::Tensor slot_mass = empty_slot_mass(inputs, output).zero_();
  for (const QueryBlock& block : attention_blocks(documents, inputs, rule)) {
    const AttentionKeys keys(inputs, rule, block);
    const at::Tensor logits = keys.logits(block_rows(q, block), rule.scale);
    // Relative to the largest logit, not to lse: exp(z - lse) would carry the rounding of lse.
    const at::Tensor largest = at::maximum(logits.amax(2), inputs.sink);
    const at::Tensor e = (logits - largest.unsqueeze(2)).exp_();
    const at::Tensor sum = e.sum(2) + (inputs.sink - largest).exp();
    block_rows(o, block).copy_(keys.weighted(e) / sum.unsqueeze(2));
    block_rows(lse_with_sink, block).copy_(largest + sum.log());
    if (slot_mass.dim() != 2 || keys.parts.size() == 1) continue;
    const int64_t columns = slot_mass.size(1);
    const at::Tensor of_slots = e.narrow(2, e.size(2) - columns, columns) / sum.unsqueeze(2);
    block_rows(slot_mass, block).copy_(of_slots.mean(1));
  }
  if (output.positions) o = rope(o, *output.positions, *output.inv_freq, /*inverse=*/true);
  return {o, lse_with_sink, slot_mass};
}

}  // namespace lethe::ops::reference
