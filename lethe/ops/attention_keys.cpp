#include "lethe/ops/attention_keys.h"

#include <algorithm>

#include <ATen/ops/logaddexp.h>

#include "lethe/core/node.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {

at::Tensor empty_slot_mass(const AttentionInputs& inputs, const AttentionOutput& output) {
  const auto options = inputs.q.options();
  return output.slot_mass && inputs.indices ? at::empty(inputs.indices->sizes(), options)
                                            : at::empty({0}, options);
}

int64_t attention_block_size(const Documents& documents,
                             const AttentionInputs& inputs,
                             const AttentionRule& rule) {
  // A block of n queries reads n + window keys for the window of each: larger blocks waste, smaller
  // ones loop.
  const int64_t most = std::clamp<int64_t>(rule.window, 64, 256);
  const int64_t num_slots = rule.ratio == 0 ? 0 : most_slots(documents, rule.ratio);
  const int64_t heads = inputs.q.size(1);
  const int64_t per_query =
      inputs.indices ? inputs.indices->size(1) * (heads + inputs.q.size(2)) : heads * num_slots;
  return queries_per_block(per_query + heads * (rule.window + most), most);
}

std::vector<QueryBlock> attention_blocks(const Documents& documents,
                                         const AttentionInputs& inputs,
                                         const AttentionRule& rule) {
  return query_blocks(
      documents, rule.window, rule.ratio, attention_block_size(documents, inputs, rule));
}

AttentionKeys::AttentionKeys(const AttentionInputs& inputs,
                             const AttentionRule& rule,
                             const QueryBlock& block)
    : parts{window_part(inputs.kv, block, rule.window)} {
  if (block.num_slots > 0)
    parts.push_back(slot_part(*inputs.slots, inputs.indices, block, rule.ratio));
}

at::Tensor AttentionKeys::products(const at::Tensor& x) const {
  Tensors columns;
  for (const KeyPart& part : parts) columns.push_back(inner(part, x));
  return columns.size() == 1 ? columns[0] : at::cat(columns, 2);
}

at::Tensor AttentionKeys::logits(const at::Tensor& q, double scale) const {
  Tensors hidden;
  for (const KeyPart& part : parts) hidden.push_back(part.hidden);
  return mask_hidden(products(q) * scale, at::cat(hidden, 1));
}

at::Tensor AttentionKeys::weighted(const at::Tensor& weights) const {
  const int64_t num_window = parts[0].hidden.size(1);
  at::Tensor sum = weighted_keys(parts[0], weights.narrow(2, 0, num_window));
  if (parts.size() > 1)
    sum += weighted_keys(parts[1], weights.narrow(2, num_window, weights.size(2) - num_window));
  return sum;
}

void AttentionKeys::add_to_sources(const at::Tensor& weights,
                                   const at::Tensor& x,
                                   at::Tensor& d_kv,
                                   at::Tensor& d_slots) const {
  const int64_t num_window = parts[0].hidden.size(1);
  add_to_keys(parts[0], weights.narrow(2, 0, num_window), x, d_kv);
  if (parts.size() > 1)
    add_to_keys(parts[1], weights.narrow(2, num_window, weights.size(2) - num_window), x, d_slots);
}

at::Tensor log_mass(const at::Tensor& logits, const at::Tensor& sink) {
  return at::logaddexp(logits.logsumexp(2), sink);
}

}  // namespace lethe::ops
