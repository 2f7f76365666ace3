#include "lethe/ops/query_blocks.h"

#include <algorithm>
#include <limits>

#include "lethe/ops/scatter_rows.h"

namespace lethe::ops {

std::vector<QueryBlock> query_blocks(const Documents& documents,
                                     int64_t window,
                                     int64_t ratio,
                                     int64_t max_queries) {
  std::vector<QueryBlock> blocks;
  int64_t slot_begin = 0;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t begin = documents.begin(d), length = documents.length(d);
    const int64_t slots = ratio > 0 ? length / ratio : 0;
    for (int64_t p = 0; p < length; p += max_queries) {
      const int64_t size = std::min(max_queries, length - p);
      const int64_t seen = ratio > 0 ? visible_slots(p + size - 1, ratio, slots) : 0;
      blocks.push_back(
          {begin + p, size, p, begin + std::max<int64_t>(0, p - window + 1), slot_begin, seen});
    }
    slot_begin += slots;
  }
  return blocks;
}

int64_t queries_per_block(int64_t elements_per_query, int64_t most) {
  constexpr int64_t kBudget = int64_t{1} << 21;
  return std::clamp<int64_t>(kBudget / std::max<int64_t>(1, elements_per_query), 1, most);
}

at::Tensor block_rows(const at::Tensor& t, const QueryBlock& block) {
  return t.narrow(0, block.begin, block.size);
}

at::Tensor visible_counts(const QueryBlock& block, int64_t ratio, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  return at::arange(block.position + 1, block.position + 1 + block.size, options)
      .div(ratio, "floor");
}

KeyPart window_part(const at::Tensor& kv, const QueryBlock& block, int64_t window) {
  const int64_t m = block.begin + block.size - block.band_begin;
  const auto options = at::TensorOptions().dtype(at::kLong).device(kv.device());
  const at::Tensor key = at::arange(m, options),
                   own = at::arange(m - block.size, m, options).unsqueeze(1);
  const at::Tensor distance = own - key;
  return {kv.narrow(0, block.band_begin, m),
          (distance < 0).logical_or(distance >= window),
          {},
          block.band_begin};
}

KeyPart slot_part(const at::Tensor& slots,
                  const std::optional<at::Tensor>& indices,
                  const QueryBlock& block,
                  int64_t ratio) {
  if (!indices) {
    const auto options = at::TensorOptions().dtype(at::kLong).device(slots.device());
    const at::Tensor hidden = at::arange(block.num_slots, options) >=
                              visible_counts(block, ratio, slots.device()).unsqueeze(1);
    return {slots.narrow(0, block.slot_begin, block.num_slots), hidden, {}, block.slot_begin};
  }
  const at::Tensor ids = block_rows(*indices, block).to(at::kLong), flat = ids.flatten();
  // A row of -1 reads some slot and is masked; without any slot there is no index to read.
  const at::Tensor rows = slots.size(0) == 0 ? slots.new_zeros({flat.numel(), slots.size(1)})
                                             : slots.index_select(0, flat.clamp_min(0));
  return {rows.view({block.size, ids.size(1), slots.size(1)}), ids < 0, flat, 0};
}

at::Tensor inner(const KeyPart& part, const at::Tensor& x) {
  return at::matmul(x, part.rows.transpose(-1, -2));
}

at::Tensor weighted_keys(const KeyPart& part, const at::Tensor& weights) {
  return at::matmul(weights, part.rows);
}

void add_to_keys(const KeyPart& part,
                 const at::Tensor& weights,
                 const at::Tensor& x,
                 at::Tensor& destination) {
  if (part.row_ids.defined()) {
    const at::Tensor sums = at::matmul(weights.transpose(1, 2), x);
    return add_rows(destination, part.row_ids, sums.reshape({-1, x.size(2)}));
  }
  const at::Tensor flat_weights = weights.reshape({-1, weights.size(2)});
  destination.narrow(0, part.begin, weights.size(2))
      .add_(at::matmul(flat_weights.t(), x.reshape({-1, x.size(2)})));
}

at::Tensor mask_hidden(const at::Tensor& x, const at::Tensor& hidden) {
  const at::Tensor mask = x.dim() == 3 ? hidden.unsqueeze(1) : hidden;
  return x.masked_fill(mask, -std::numeric_limits<double>::infinity());
}

}  // namespace lethe::ops
