#include "lethe/ops/indexer.h"

#include <limits>

#include "lethe/ops/index_scores.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/select_topk.h"

namespace lethe::ops::reference {
namespace {

constexpr double kInvisible = -std::numeric_limits<double>::infinity();

/// The block's rows of the selection, int64 [size, width].
at::Tensor selected(const IndexerInputs& inputs,
                    const QueryBlock& block,
                    int64_t ratio,
                    int64_t width,
                    const IndexerChoice& choice) {
  const at::Tensor visible = visible_counts(block, ratio, inputs.q.device());
  at::Tensor scores = block_scores(inputs, block, slot_part(inputs.k, {}, block, ratio));
  if (!choice.return_values) scores.masked_fill_((visible <= width).unsqueeze(1), 0.0);
  const at::Tensor columns = select_topk(scores, visible, width);
  return (columns + block.slot_begin).masked_fill_(columns < 0, -1);
}

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
                                                     const IndexerChoice& choice) {
  const Documents documents = documents_of("lightning_indexer", cu_seqlens, inputs.q.size(0));
  const int64_t width = std::min(choice.topk, most_slots(documents, ratio));
  const at::TensorOptions options = inputs.q.options();
  at::Tensor indices = choice.given != nullptr
                           ? choice.given->clone(at::MemoryFormat::Contiguous)
                           : at::full({inputs.q.size(0), width}, -1, options.dtype(at::kInt));
  at::Tensor values = choice.return_values ? at::full(indices.sizes(), kInvisible, options)
                                           : at::empty({0}, options);
  for (const QueryBlock& block : index_blocks(documents, inputs, ratio)) {
    if (block.num_slots == 0) continue;
    if (choice.given == nullptr)
      block_rows(indices, block).copy_(selected(inputs, block, ratio, indices.size(1), choice));
    if (choice.return_values)
      block_rows(values, block)
          .copy_(block_scores(inputs, block, slot_part(inputs.k, indices, block, ratio)));
  }
  return {indices, values};
}

}  // namespace lethe::ops::reference
