#include "lethe/ops/cross_entropy.h"

#include <algorithm>

#include <ATen/ops/mm.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "cross_entropy";

using Outputs =
    std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // loss sum, token loss, log-sum-exp

void check(const at::Tensor& hidden,
           const at::Tensor& head,
           const at::Tensor& labels,
           int64_t chunk_tokens) {
  check_sizes(kOp, "hidden", "[T,D]", hidden, {-1, -1}, "flatten batch and sequence to T");
  check_sizes(
      kOp, "head", "[V,D]", head, {-1, hidden.size(1)}, "pass the output head, not its transpose");
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

void check_labels(const at::Tensor& labels, int64_t vocab_size) {
  const at::Tensor bad = ((labels < 0) | (labels >= vocab_size)) & (labels != kIgnoredLabel);
  if (!bad.any().item<bool>()) return;
  const int64_t token = bad.to(at::kInt).argmax().item<int64_t>();
  fail<DataError>(
      "cross_entropy [labels]: must be {} (not counted) or lie in [0, {}), the rows of head, got "
      "label {} at "
      "token {}; was the text tokenized for another vocabulary?",
      kIgnoredLabel,
      vocab_size,
      labels[token].item<int64_t>(),
      token);
}

Outputs forward(const at::Tensor& hidden,
                const at::Tensor& head,
                const at::Tensor& labels,
                int64_t chunk_tokens) {
  check(hidden, head, labels, chunk_tokens);
  check_labels(labels, head.size(0));
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

// Turns logits [n,V] into their gradient in place: (softmax - onehot(label)) * d_loss, 0 in
// uncounted rows.
void logits_gradient(at::Tensor& logits,
                     const at::Tensor& lse,
                     const at::Tensor& labels,
                     const at::Tensor& d_loss) {
  logits.sub_(lse.unsqueeze(1)).exp_();
  const at::Tensor label_column = labels.clamp_min(0).unsqueeze(1);
  logits.scatter_(1, label_column, logits.gather(1, label_column) - 1);
  logits.mul_(d_loss).masked_fill_((labels == kIgnoredLabel).unsqueeze(1), 0);
}

Tensors backward(const BackwardInput& in, int64_t chunk_tokens) {
  const at::Tensor &hidden = in.saved[0], &labels = in.saved[2], &lse = in.saved[3];
  const at::Tensor head = widen(in.saved[1]);
  const int64_t tokens = hidden.size(0);
  at::Tensor d_hidden, d_head;
  if (in.needed[0]) d_hidden = at::empty(hidden.sizes(), hidden.options());
  if (in.needed[1]) d_head = at::zeros(head.sizes(), head.options());
  const at::Tensor buffer =
      at::empty({std::min(tokens, chunk_tokens), head.size(0)}, hidden.options());
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    const auto chunk = [begin, count](const at::Tensor& t) { return t.narrow(0, begin, count); };
    at::Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, chunk(hidden), head.t());
    logits_gradient(logits, chunk(lse), chunk(labels), in.grads[0]);
    if (in.needed[0]) {
      at::Tensor rows = chunk(d_hidden);
      at::mm_out(rows, logits, head);
    }
    if (in.needed[1]) d_head.addmm_(logits.t(), chunk(hidden));
  }
  return {d_hidden, d_head, at::Tensor()};
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
         [chunk_tokens](const BackwardInput& in) { return backward(in, chunk_tokens); });
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
