#include "lethe/ops/indexer.h"

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/index_scores.h"
#include "lethe/ops/indexer_fused.h"
#include "lethe/ops/indexer_grad.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using Selection = std::tuple<at::Tensor, at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kScores = "indexer_scores";
constexpr const char* kSelect = "lightning_indexer";

Fusable fusable_scores(kScores);
Fusable fusable_select(kSelect);

at::Tensor scores_forward(const at::Tensor& q,
                          const at::Tensor& k,
                          const at::Tensor& w,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio) {
  const Documents documents = check_indexer(kScores, {q, k, w}, cu_seqlens, ratio);
  if (fusable_scores.runs(q)) return fused_indexer_scores({q, k, w}, documents, ratio);
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

Documents check_select(const IndexerInputs& inputs,
                       const at::Tensor& cu_seqlens,
                       int64_t ratio,
                       const IndexerChoice& choice) {
  LETHE_CHECK(ShapeError,
              choice.topk >= 1,
              "lightning_indexer: topk must be >= 1, got {}; set index_topk",
              choice.topk);
  if (choice.given != nullptr) check_given_shape(*choice.given, inputs.q.size(0));
  return check_indexer(kSelect, inputs, cu_seqlens, ratio);
}

IndexerChoice choice_of(int64_t topk, const OptionalTensor& given, bool return_values) {
  return {topk, return_values, given ? &*given : nullptr};
}

Selection select_forward(const at::Tensor& q,
                         const at::Tensor& k,
                         const at::Tensor& w,
                         const at::Tensor& cu_seqlens,
                         int64_t ratio,
                         int64_t topk,
                         const OptionalTensor& given,
                         bool return_values) {
  const IndexerChoice choice = choice_of(topk, given, return_values);
  const Documents documents = check_select({q, k, w}, cu_seqlens, ratio, choice);
  if (given) check_given(*given, documents, ratio);
  if (fusable_select.runs(q)) return fused_lightning_indexer({q, k, w}, documents, ratio, choice);
  return reference::lightning_indexer({q, k, w}, cu_seqlens, ratio, choice);
}

Selection select_meta(const at::Tensor& q,
                      const at::Tensor& k,
                      const at::Tensor& w,
                      const at::Tensor& cu_seqlens,
                      int64_t ratio,
                      int64_t topk,
                      const OptionalTensor& given,
                      bool return_values) {
  const Documents documents =
      check_select({q, k, w}, cu_seqlens, ratio, choice_of(topk, given, return_values));
  const int64_t width = given ? given->size(1) : std::min(topk, most_slots(documents, ratio));
  const std::vector<int64_t> sizes{q.size(0), width};
  return {at::empty(sizes, q.options().dtype(at::kInt)),
          at::empty(return_values ? sizes : std::vector<int64_t>{0}, q.options())};
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
  Documents documents = documents_of(kScores, cu_seqlens, q.size(0));
  record("lethe::indexer_scores",
         {q, k, w},
         {scores},
         {q, k, w},
         indexer_gradient(std::move(documents), ratio, fusable_scores.would_run(q)));
  return scores;
}

Selection select_autograd(const at::Tensor& q,
                          const at::Tensor& k,
                          const at::Tensor& w,
                          const at::Tensor& cu_seqlens,
                          int64_t ratio,
                          int64_t topk,
                          const OptionalTensor& given,
                          bool return_values) {
  at::Tensor indices, values;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::tie(indices, values) =
        lightning_indexer({q, k, w}, cu_seqlens, ratio, choice_of(topk, given, return_values));
  }
  if (!return_values) return {indices, values};
  Documents documents = documents_of(kSelect, cu_seqlens, q.size(0));
  record("lethe::lightning_indexer",
         {q, k, w},
         {values},
         {q, k, w, indices},
         indexer_gradient(std::move(documents), ratio, fusable_select.would_run(q)));
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
    "lightning_indexer(Tensor q, Tensor k, Tensor w, Tensor cu_seqlens, int ratio, int topk, "
    "Tensor? given=None, bool return_values=True) -> (Tensor indices, Tensor values)",
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
                            const IndexerChoice& choice) {
  using Signature = Selection(const at::Tensor&,
                              const at::Tensor&,
                              const at::Tensor&,
                              const at::Tensor&,
                              int64_t,
                              int64_t,
                              const OptionalTensor&,
                              bool);
  const OptionalTensor given =
      choice.given != nullptr ? OptionalTensor(*choice.given) : std::nullopt;
  return LETHE_OP_HANDLE(lightning_indexer, Signature)
      .call(inputs.q,
            inputs.k,
            inputs.w,
            cu_seqlens,
            ratio,
            choice.topk,
            given,
            choice.return_values);
}

}  // namespace lethe::ops
