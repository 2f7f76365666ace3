#include "lethe/ops/balance_loss.h"

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/document_rows.h"
#include "lethe/ops/register.h"
#include "lethe/ops/score_function.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "balance_loss";

using LossAndLoad = std::tuple<at::Tensor, at::Tensor>;

// Returns the number of documents.
int64_t check(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  check_sizes(kOp, "scores", "[T,E]", scores, {-1, -1}, "flatten batch and sequence to T");
  check_floating(kOp, "scores", scores);
  LETHE_CHECK(ShapeError,
              k >= 1 && k <= scores.size(1),
              "balance_loss [k]: must lie in [1, E] = [1, {}], got {}; correct experts_per_token",
              scores.size(1),
              k);
  check_sizes(kOp, "cu_seqlens", "[N+1]", cu_seqlens, {-1}, "pass [0, T] for one document");
  check_dtype(kOp, "cu_seqlens", cu_seqlens, at::kInt, "pass the starts that the batch carries");
  LETHE_CHECK(ConfigError,
              cu_seqlens.device().is_cpu(),
              "balance_loss [device]: cu_seqlens must be on cpu, got {}; "
              "document boundaries stay on the host",
              cu_seqlens.device().str());
  const at::Tensor starts = cu_seqlens.contiguous();
  const Documents documents(
      {starts.const_data_ptr<int32_t>(), static_cast<size_t>(starts.numel())});
  LETHE_CHECK(ShapeError,
              documents.tokens() == scores.size(0),
              "balance_loss [documents]: cu_seqlens must end with T = {}, the rows of scores {}, "
              "got {}; pass the "
              "documents of the same tokens",
              scores.size(0),
              shape_text(scores),
              documents.tokens());
  return documents.count();
}

LossAndLoad forward(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  static_cast<void>(check(scores, cu_seqlens, k));
  return reference::balance_loss(scores, cu_seqlens, k);
}

LossAndLoad meta(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  const int64_t documents = check(scores, cu_seqlens, k);
  return {at::empty({}, scores.options()),
          at::empty({documents, scores.size(1)}, scores.options())};
}

// Per token t of a document of n tokens among N, with S = sum(s) + 1e-20:
//   ds = (f - sum(f s) / S) / S * dL / (N n)
Tensors backward(const BackwardInput& in) {
  const at::Tensor &dy = in.grads[0], &scores = in.saved[0], &load = in.saved[2];
  const DocumentRows documents = document_rows(in.saved[1], scores);
  const at::Tensor per_token =
      (dy / (documents.lengths * documents.lengths.size(0))).index_select(0, documents.of_token);
  const at::Tensor f = load.index_select(0, documents.of_token);
  const at::Tensor sum = scores.sum(-1, /*keepdim=*/true) + kScoreSumFloor;
  return {(f - (f * scores).sum(-1, /*keepdim=*/true) / sum) / sum * per_token, at::Tensor()};
}

LossAndLoad call(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  return LETHE_OP_HANDLE(balance_loss, LossAndLoad(const at::Tensor&, const at::Tensor&, int64_t))
      .call(scores, cu_seqlens, k);
}

LossAndLoad autograd(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  LossAndLoad out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = call(scores, cu_seqlens, k);
  }
  const auto& [loss, load] = out;
  record("lethe::balance_loss", {scores, cu_seqlens}, {loss}, {scores, cu_seqlens, load}, backward);
  return out;
}

LETHE_REGISTER_OP(
    balance_loss,
    "balance_loss(Tensor scores, Tensor cu_seqlens, int k) -> (Tensor loss, Tensor load)",
    forward,
    meta,
    autograd)

}  // namespace

at::Tensor balance_loss(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k) {
  return std::get<0>(call(scores, cu_seqlens, k));
}

}  // namespace lethe::ops
