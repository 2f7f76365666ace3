#include "lethe/ops/sparse_attention_grad.h"

#include "lethe/ops/attention_keys.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/rope.h"

namespace lethe::ops {

// With delta = <do, o>, P = exp(z - lse):  dz = P*(<do,k> - delta),  dq = scale*sum dz*k,
// dk = sum_{t,h} (scale*dz*q + P*do),  dsink = -sum_t exp(sink - lse)*delta.
Tensors sparse_attention_gradients(const AttentionInputs& inputs,
                                   const AttentionRule& rule,
                                   const AttentionOutput& output,
                                   const AttentionGradInput& grad) {
  const at::Tensor& q = inputs.q;
  const Documents documents = documents_of("sparse_attention", inputs.cu_seqlens, q.size(0));
  // A rotation changes no inner product.
  const at::Tensor delta = (grad.d_o * grad.o).sum(2);
  const at::Tensor d_o = output.positions ? reference::rope(grad.d_o,
                                                            *output.positions,
                                                            *output.inv_freq,
                                                            /*inverse=*/false)
                                          : grad.d_o;
  at::Tensor d_q = at::empty(q.sizes(), q.options());
  at::Tensor d_kv = at::zeros(inputs.kv.sizes(), q.options());
  at::Tensor d_slots = inputs.slots ? at::zeros(inputs.slots->sizes(), q.options()) : at::Tensor();
  for (const QueryBlock& block : attention_blocks(documents, inputs, rule)) {
    const AttentionKeys keys(inputs, rule, block);
    const at::Tensor q_rows = block_rows(q, block), d_o_rows = block_rows(d_o, block);
    const at::Tensor lse = block_rows(grad.lse_with_sink, block).unsqueeze(2);
    const at::Tensor p = (keys.logits(q_rows, rule.scale) - lse).exp_();
    const at::Tensor d_products =
        (keys.products(d_o_rows) - block_rows(delta, block).unsqueeze(2)).mul_(p).mul_(rule.scale);
    block_rows(d_q, block).copy_(keys.weighted(d_products));
    keys.add_to_sources(d_products, q_rows, d_kv, d_slots);
    keys.add_to_sources(p, d_o_rows, d_kv, d_slots);
  }
  const at::Tensor d_sink = ((inputs.sink - grad.lse_with_sink).exp() * delta).sum(0).neg();
  return {d_q, d_kv, d_slots, d_sink};
}

}  // namespace lethe::ops
