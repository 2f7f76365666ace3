#include "lethe/ops/attention_keys.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/logaddexp.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {
namespace {

void check_slots(const char* op,
                 const AttentionInputs& inputs,
                 const Documents& documents,
                 int64_t ratio) {
  const auto& slots = inputs.slots;
  const auto& indices = inputs.indices;
  LETHE_CHECK(ShapeError,
              slots.has_value() == (ratio > 0),
              "{}: slots must be given exactly for ratio > 0, got ratio {} and slots {}; check the "
              "layer's ratio",
              op,
              ratio,
              slots ? shape_text(*slots) : "none");
  LETHE_CHECK(ShapeError, slots || !indices, "{}: indices need slots, got ratio 0; drop them", op);
  if (!slots) return;
  check_same_dtype(op, "slots", *slots, inputs.q);
  check_sizes(op, "slots", "[C,c]", *slots, {total_slots(documents, ratio), inputs.q.size(2)});
  if (!indices) return;
  LETHE_CHECK(DtypeError,
              indices->scalar_type() == at::kInt,
              "{}: indices must be int32, got {}; pass those of lightning_indexer",
              op,
              dtype_text(*indices));
  LETHE_CHECK(ShapeError,
              indices->dim() == 2 && indices->size(0) == inputs.q.size(0),
              "{}: indices must be [T,K] with T = {}, got {}; pass those of the same row",
              op,
              inputs.q.size(0),
              shape_text(*indices));
}

}  // namespace

Documents check_attention(const char* op,
                          const AttentionInputs& inputs,
                          const AttentionRule& rule) {
  const at::Tensor& q = inputs.q;
  LETHE_CHECK(ShapeError,
              rule.window >= 1,
              "{}: window must be >= 1, got {}; set sliding_window",
              op,
              rule.window);
  LETHE_CHECK(ShapeError,
              rule.ratio == 0 || rule.ratio >= 2,
              "{}: ratio must be 0 or >= 2, got {}; read 1 as 0 when importing",
              op,
              rule.ratio);
  LETHE_CHECK(ShapeError,
              std::isfinite(rule.scale) && rule.scale > 0,
              "{}: scale must be finite and > 0, got {}; use head_dim^-0.5",
              op,
              rule.scale);
  check_real(op, "q", q);
  check_dims(op, "q", "[T,H,c]", q, 3);
  check_same_dtype(op, "kv", inputs.kv, q);
  check_sizes(op, "kv", "[T,c]", inputs.kv, {q.size(0), q.size(2)});
  check_same_dtype(op, "sink", inputs.sink, q);
  check_sizes(op, "sink", "[H]", inputs.sink, {q.size(1)});
  Documents documents = documents_of(op, inputs.cu_seqlens, q.size(0));
  check_slots(op, inputs, documents, rule.ratio);
  return documents;
}

void check_indices(const char* op,
                   const AttentionInputs& inputs,
                   const Documents& documents,
                   int64_t ratio) {
  if (!inputs.indices) return;
  const std::vector<int64_t> positions = documents.positions();
  const std::vector<int32_t> cu_slots = documents.cu_slots(ratio);
  std::vector<int64_t> begin, end;
  for (int64_t d = 0, token = 0; d < documents.count(); ++d)
    for (const int64_t first = cu_slots[static_cast<size_t>(d)]; token < documents.end(d);
         ++token) {
      begin.push_back(first);
      end.push_back(first + (positions[static_cast<size_t>(token)] + 1) / ratio);
    }
  const at::Device device = inputs.indices->device();
  const at::Tensor ids = inputs.indices->to(at::kLong);
  const at::Tensor low = at::tensor(begin, at::kLong).to(device).unsqueeze(1);
  const at::Tensor high = at::tensor(end, at::kLong).to(device).unsqueeze(1);
  const at::Tensor bad = (ids != -1).logical_and((ids < low).logical_or(ids >= high)).nonzero();
  if (bad.size(0) == 0) return;
  const int64_t token = bad[0][0].item<int64_t>(), column = bad[0][1].item<int64_t>();
  fail<ShapeError>(
      "{}: indices[{},{}] must be -1 or a slot visible to its query, in [{},{}), got {}; "
      "select with the same cu_seqlens and ratio",
      op,
      token,
      column,
      begin[static_cast<size_t>(token)],
      end[static_cast<size_t>(token)],
      ids[token][column].item<int64_t>());
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
