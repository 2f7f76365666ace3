#include "lethe/ops/indexer.h"

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/index_scores.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using Selection = std::tuple<at::Tensor, at::Tensor>;

constexpr const char* kScores = "indexer_scores";
constexpr const char* kSelect = "lightning_indexer";

void check_topk(int64_t topk) {
  LETHE_CHECK(
      ShapeError, topk >= 1, "lightning_indexer: topk must be >= 1, got {}; set index_topk", topk);
}

at::Tensor scores_forward(const at::Tensor& q,
                          const at::Tensor& k,
                          const at::Tensor& w,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio) {
  check_indexer(kScores, {q, k, w}, cu_seqlens, ratio);
  return reference::indexer_scores({q, k, w}, cu_seqlens, ratio);
}

at::Tensor scores_meta(const at::Tensor& q,
                       const at::Tensor& k,
                       const at::Tensor& w,
                       const at::Tensor& cu_seqlens,
                       int64_t ratio) {
  const Documents documents = check_indexer(kScores, {q, k, w}, cu_seqlens, ratio);
  return at::empty({q.size(0), most_slots(documents, ratio)}, q.options());
}

Selection select_forward(const at::Tensor& q,
                         const at::Tensor& k,
                         const at::Tensor& w,
                         const at::Tensor& cu_seqlens,
                         int64_t ratio,
                         int64_t topk) {
  check_topk(topk);
  check_indexer(kSelect, {q, k, w}, cu_seqlens, ratio);
  return reference::lightning_indexer({q, k, w}, cu_seqlens, ratio, topk);
}

Selection select_meta(const at::Tensor& q,
                      const at::Tensor& k,
                      const at::Tensor& w,
                      const at::Tensor& cu_seqlens,
                      int64_t ratio,
                      int64_t topk) {
  check_topk(topk);
  const Documents documents = check_indexer(kSelect, {q, k, w}, cu_seqlens, ratio);
  const std::vector<int64_t> sizes{q.size(0), std::min(topk, most_slots(documents, ratio))};
  return {at::empty(sizes, q.options().dtype(at::kInt)), at::empty(sizes, q.options())};
}

/// saved: q, k, w and, for the selection, its indices; d [T, *] over the scores' columns or the
/// selected ones.
Tensors backward(const BackwardInput& in, const Documents& documents, int64_t ratio) {
  const IndexerInputs inputs{in.saved[0], in.saved[1], in.saved[2]};
  const std::optional<at::Tensor> indices =
      in.saved.size() > 3 ? std::optional<at::Tensor>(in.saved[3]) : std::nullopt;
  IndexerGradients gradients(inputs);
  for (const QueryBlock& block : index_blocks(documents, inputs, ratio)) {
    if (block.num_slots == 0) continue;
    const KeyPart part = slot_part(inputs.k, indices, block, ratio);
    gradients.add(
        inputs, block, part, block_rows(in.grads[0], block).narrow(1, 0, part.hidden.size(1)));
  }
  return {gradients.q, gradients.k, gradients.w};
}

at::Tensor scores_autograd(const at::Tensor& q,
                           const at::Tensor& k,
                           const at::Tensor& w,
                           const at::Tensor& cu_seqlens,
                           int64_t ratio) {
  at::Tensor scores;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    scores = indexer_scores({q, k, w}, cu_seqlens, ratio);
  }
  record("lethe::indexer_scores",
         {q, k, w},
         {scores},
         {q, k, w},
         [documents = documents_of(kScores, cu_seqlens, q.size(0)),
          ratio](const BackwardInput& in) { return backward(in, documents, ratio); });
  return scores;
}

Selection select_autograd(const at::Tensor& q,
                          const at::Tensor& k,
                          const at::Tensor& w,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio,
                          int64_t topk) {
  at::Tensor indices, values;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::tie(indices, values) = lightning_indexer({q, k, w}, cu_seqlens, ratio, topk);
  }
  record("lethe::lightning_indexer",
         {q, k, w},
         {values},
         {q, k, w, indices},
         [documents = documents_of(kSelect, cu_seqlens, q.size(0)),
          ratio](const BackwardInput& in) { return backward(in, documents, ratio); });
  return {indices, values};
}

LETHE_REGISTER_OP(
    indexer_scores,
    "indexer_scores(Tensor q, Tensor k, Tensor w, Tensor cu_seqlens, int ratio) -> Tensor",
    scores_forward,
    scores_meta,
    scores_autograd)

LETHE_REGISTER_OP(
    lightning_indexer,
    "lightning_indexer(Tensor q, Tensor k, Tensor w, Tensor cu_seqlens, int ratio, int topk) "
    "-> (Tensor indices, Tensor values)",
    select_forward,
    select_meta,
    select_autograd)

}  // namespace

at::Tensor indexer_scores(const IndexerInputs& inputs,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio) {
  using Signature = at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
  return LETHE_OP_HANDLE(indexer_scores, Signature)
      .call(inputs.q, inputs.k, inputs.w, cu_seqlens, ratio);
}

Selection lightning_indexer(const IndexerInputs& inputs,
                            const at::Tensor& cu_seqlens,
                            int64_t ratio,
                            int64_t topk) {
  using Signature = Selection(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t);
  return LETHE_OP_HANDLE(lightning_indexer, Signature)
      .call(inputs.q, inputs.k, inputs.w, cu_seqlens, ratio, topk);
}

}  // namespace lethe::ops
