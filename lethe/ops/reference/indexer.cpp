#include "lethe/ops/indexer.h"

#include <limits>

#include "lethe/ops/index_scores.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/select_topk.h"

namespace lethe::ops::reference {
namespace {

constexpr double kInvisible = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor indexer_scores(const IndexerInputs& inputs,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio) {
  const Documents documents = documents_of("indexer_scores", cu_seqlens, inputs.q.size(0));
  at::Tensor scores =
      at::full({inputs.q.size(0), most_slots(documents, ratio)}, kInvisible, inputs.q.options());
  for (const QueryBlock& block : index_blocks(documents, inputs, ratio)) {
    if (block.num_slots == 0) continue;
    const KeyPart part = slot_part(inputs.k, {}, block, ratio);
    block_rows(scores, block)
        .narrow(1, 0, block.num_slots)
        .copy_(block_scores(inputs, block, part));
  }
  return scores;
}

std::tuple<at::Tensor, at::Tensor> lightning_indexer(const IndexerInputs& inputs,
                                                     const at::Tensor& cu_seqlens,
                                                     int64_t ratio,
                                                     int64_t topk) {
  const Documents documents = documents_of("lightning_indexer", cu_seqlens, inputs.q.size(0));
  const int64_t width = std::min(topk, most_slots(documents, ratio));
  at::Tensor indices = at::full({inputs.q.size(0), width}, -1, inputs.q.options().dtype(at::kInt));
  at::Tensor values = at::full({inputs.q.size(0), width}, kInvisible, inputs.q.options());
  for (const QueryBlock& block : index_blocks(documents, inputs, ratio)) {
    if (block.num_slots == 0) continue;
    const at::Tensor scores = block_scores(inputs, block, slot_part(inputs.k, {}, block, ratio));
    const at::Tensor columns =
        select_topk(scores, visible_counts(block, ratio, scores.device()), width);
    const at::Tensor none = columns < 0;
    block_rows(indices, block).copy_((columns + block.slot_begin).masked_fill_(none, -1));
    block_rows(values, block)
        .copy_(scores.gather(1, columns.clamp_min(0)).masked_fill_(none, kInvisible));
  }
  return {indices, values};
}

}  // namespace lethe::ops::reference
