#include "lethe/ops/indexer_grad.h"

#include "lethe/ops/index_scores.h"
#include "lethe/ops/indexer_fused.h"

namespace lethe::ops {
namespace {

struct GradientRule {
  Documents documents;
  int64_t ratio;
  bool fused;
};

Tensors backward(const BackwardInput& in, const GradientRule& rule) {
  const IndexerInputs inputs{in.saved[0], in.saved[1], in.saved[2]};
  const std::optional<at::Tensor> indices =
      in.saved.size() > 3 ? std::optional<at::Tensor>(in.saved[3]) : std::nullopt;
  if (rule.fused)
    return fused_indexer_backward(inputs, rule.documents, rule.ratio, indices, in.grads[0]);
  IndexerGradients gradients(inputs);
  for (const QueryBlock& block : index_blocks(rule.documents, inputs, rule.ratio)) {
    if (block.num_slots == 0) continue;
    const KeyPart part = slot_part(inputs.k, indices, block, rule.ratio);
    gradients.add(
        inputs, block, part, block_rows(in.grads[0], block).narrow(1, 0, part.hidden.size(1)));
  }
  return {gradients.q, gradients.k, gradients.w};
}

}  // namespace

BackwardFn indexer_gradient(Documents documents, int64_t ratio, bool fused) {
  return [rule = GradientRule{std::move(documents), ratio, fused}](const BackwardInput& in) {
    return backward(in, rule);
  };
}

}  // namespace lethe::ops
