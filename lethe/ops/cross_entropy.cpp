#include "lethe/ops/cross_entropy.h"

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/cross_entropy.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/cross_entropy_grad.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/logit_chunks.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "cross_entropy";

using Outputs =
    std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // loss sum, token loss, log-sum-exp

Fusable fusable("cross_entropy");

void check(const at::Tensor& hidden,
           const at::Tensor& head,
           const at::Tensor& labels,
           int64_t chunk_tokens) {
  check_sizes(kOp, "hidden", "[T,D]", hidden, {-1, -1}, "flatten batch and sequence to T");
  check_sizes(
      kOp, "head", "[V,D]", head, {-1, hidden.size(1)}, "pass the output head, not its transpose");
  LETHE_CHECK(ShapeError,
              head.size(0) >= 1,
              "cross_entropy: head must be [V,D] with V >= 1, got {}",
              shape_text(head));
  check_sizes(kOp, "labels", "[T]", labels, {hidden.size(0)}, "pass one label per token");
  check_floating(kOp, "hidden", hidden);
  check_weight_dtype(kOp, "head", head, hidden);
  check_dtype(kOp, "labels", labels, at::kLong, "pass token ids");
  LETHE_CHECK(
      ConfigError,
      chunk_tokens >= 1,
      "cross_entropy [chunk_tokens]: must be >= 1, got {}; a chunk holds that many rows of logits",
      chunk_tokens);
}

[[noreturn]] void refuse_label(int64_t vocab_size, int64_t label, int64_t token) {
  fail<DataError>(
      "cross_entropy [labels]: must be {} (not counted) or lie in [0, {}), the rows of head, got "
      "label {} at "
      "token {}; was the text tokenized for another vocabulary?",
      kIgnoredLabel,
      vocab_size,
      label,
      token);
}

void check_labels(const at::Tensor& labels, int64_t vocab_size) {
  const at::Tensor flat = labels.cpu().contiguous();
  const int64_t* label = flat.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < flat.numel(); ++t)
    if (label[t] != kIgnoredLabel && (label[t] < 0 || label[t] >= vocab_size))
      refuse_label(vocab_size, label[t], t);
}

Outputs fused_forward(const at::Tensor& hidden,
                      const at::Tensor& head,
                      const at::Tensor& labels,
                      int64_t chunk_tokens) {
  const at::Tensor flat = labels.contiguous();
  at::Tensor token_loss = at::empty({hidden.size(0)}, hidden.options()),
             lse = at::empty({hidden.size(0)}, hidden.options());
  for_logit_chunks(
      hidden,
      widen(head),
      chunk_tokens,
      fused_matmul_into,
      [&](const LogitChunk& chunk, const at::Tensor& logits) {
        kernels::cross_entropy_forward({.parallel = aten_pool(),
                                        .rows = chunk.count,
                                        .vocab = logits.size(1),
                                        .ignored = kIgnoredLabel,
                                        .logits = logits.const_data_ptr<float>(),
                                        .labels = flat.const_data_ptr<int64_t>() + chunk.begin,
                                        .token_loss = token_loss.data_ptr<float>() + chunk.begin,
                                        .lse = lse.data_ptr<float>() + chunk.begin});
      });
  return {token_loss.sum(), token_loss, lse};
}

Outputs forward(const at::Tensor& hidden,
                const at::Tensor& head,
                const at::Tensor& labels,
                int64_t chunk_tokens) {
  check(hidden, head, labels, chunk_tokens);
  check_labels(labels, head.size(0));
  if (fusable.runs(hidden)) return fused_forward(hidden, head, labels, chunk_tokens);
  return reference::cross_entropy(hidden, head, labels, chunk_tokens);
}

Outputs meta(const at::Tensor& hidden,
             const at::Tensor& head,
             const at::Tensor& labels,
             int64_t chunk_tokens) {
  check(hidden, head, labels, chunk_tokens);
  return {at::empty({}, hidden.options()),
          at::empty({hidden.size(0)}, hidden.options()),
          at::empty({hidden.size(0)}, hidden.options())};
}

Outputs call(const at::Tensor& hidden,
             const at::Tensor& head,
             const at::Tensor& labels,
             int64_t chunk_tokens) {
  using Signature = Outputs(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
  return LETHE_OP_HANDLE(cross_entropy, Signature).call(hidden, head, labels, chunk_tokens);
}

Outputs autograd(const at::Tensor& hidden,
                 const at::Tensor& head,
                 const at::Tensor& labels,
                 int64_t chunk_tokens) {
  Outputs out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = call(hidden, head, labels, chunk_tokens);
  }
  const auto& [loss_sum, token_loss, lse] = out;
  record("lethe::cross_entropy",
         {hidden, head, labels},
         {loss_sum},
         {hidden, head, labels, lse},
         [chunk_tokens, fused = fusable.would_run(hidden)](const BackwardInput& in) {
           return cross_entropy_backward(in, chunk_tokens, fused);
         });
  return out;
}

LETHE_REGISTER_OP(cross_entropy,
                  "cross_entropy(Tensor hidden, Tensor head, Tensor labels, int chunk_tokens) -> "
                  "(Tensor loss_sum, Tensor token_loss, Tensor lse)",
                  forward,
                  meta,
                  autograd)

}  // namespace

std::tuple<at::Tensor, at::Tensor> cross_entropy(const at::Tensor& hidden,
                                                 const at::Tensor& head,
                                                 const at::Tensor& labels,
                                                 int64_t chunk_tokens) {
  const auto [loss_sum, token_loss, lse] = call(hidden, head, labels, chunk_tokens);
  return {loss_sum, token_loss};
}

}  // namespace lethe::ops
