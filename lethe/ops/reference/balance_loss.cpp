#include "lethe/ops/balance_loss.h"

#include "lethe/ops/document_rows.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/scatter_rows.h"
#include "lethe/ops/score_function.h"

namespace lethe::ops::reference {

std::pair<at::Tensor, at::Tensor> balance_loss(const at::Tensor& scores,
                                               const at::Tensor& cu_seqlens,
                                               int64_t k) {
  const int64_t num_experts = scores.size(1);
  const DocumentRows documents = document_rows(cu_seqlens, scores);
  const auto mean_of_documents = [&](const at::Tensor& per_token) {
    at::Tensor sums = at::zeros({documents.lengths.size(0), num_experts}, scores.options());
    add_rows(sums, documents.of_token, per_token);
    return sums.div_(documents.lengths);
  };
  const at::Tensor chosen = gate_select(scores, {}, k).to(at::kLong);
  const at::Tensor selected = at::zeros(scores.sizes(), scores.options()).scatter_(1, chosen, 1);
  const at::Tensor load =
      mean_of_documents(selected).mul_(static_cast<double>(num_experts) / static_cast<double>(k));
  const at::Tensor share =
      mean_of_documents(scores / (scores.sum(-1, /*keepdim=*/true) + kScoreSumFloor));
  return {(load * share).sum() / documents.lengths.size(0), load};
}

}  // namespace lethe::ops::reference
