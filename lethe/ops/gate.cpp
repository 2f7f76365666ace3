#include "lethe/ops/gate.h"

#include <ATen/ops/sigmoid.h>

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/register.h"
#include "lethe/ops/score_function.h"

// The differentiable steps of the gate; gate_select.cpp has the integer ones.
namespace lethe::ops {

ScoreFunction parse_score_function(std::string_view name) {
  if (name == "sqrtsoftplus") return ScoreFunction::SqrtSoftplus;
  if (name == "sigmoid") return ScoreFunction::Sigmoid;
  if (name == "softmax") return ScoreFunction::Softmax;
  fail<ConfigError>(
      "gate_scores [score_function]: must be sqrtsoftplus, sigmoid or softmax, got '{}'; correct "
      "scoring_func in the model's configuration",
      name);
}

namespace {

void check_scores(const at::Tensor& logits) {
  check_sizes(
      "gate_scores", "logits", "[T,E]", logits, {-1, -1}, "flatten batch and sequence to T");
  check_floating("gate_scores", "logits", logits);
}

at::Tensor scores_forward(const at::Tensor& logits, std::string_view score_function) {
  check_scores(logits);
  return reference::gate_scores(logits, score_function);
}

at::Tensor scores_meta(const at::Tensor& logits, std::string_view score_function) {
  check_scores(logits);
  static_cast<void>(parse_score_function(score_function));
  return at::empty(logits.sizes(), logits.options());
}

at::Tensor scores_backward(const at::Tensor& dy,
                           const at::Tensor& s,
                           const at::Tensor& logits,
                           ScoreFunction f) {
  switch (f) {
    case ScoreFunction::Sigmoid:
      return dy * s * (1 - s);
    case ScoreFunction::Softmax:
      return s * (dy - (dy * s).sum(-1, /*keepdim=*/true));
    case ScoreFunction::SqrtSoftplus:
      break;
  }
  const at::Tensor softplus_slope =
      at::where(logits > kSoftplusThreshold, at::ones({}, s.options()), logits.sigmoid());
  // Below about l = -103 softplus underflows in float32 and 0/0 would appear; the limit is 0.
  return dy * (softplus_slope / (2 * s)).masked_fill(s == 0, 0);
}

at::Tensor scores_autograd(const at::Tensor& logits, std::string_view score_function) {
  at::Tensor s;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    s = gate_scores(logits, score_function);
  }
  const ScoreFunction f = parse_score_function(score_function);
  const at::Tensor kept_logits = f == ScoreFunction::SqrtSoftplus ? logits : at::Tensor();
  record("lethe::gate_scores", {logits}, {s}, {s, kept_logits}, [f](const BackwardInput& in) {
    return Tensors{scores_backward(in.grads[0], in.saved[0], in.saved[1], f)};
  });
  return s;
}

void check_weights(const at::Tensor& scores, const at::Tensor& indices) {
  check_sizes(
      "gate_weights", "scores", "[T,E]", scores, {-1, -1}, "flatten batch and sequence to T");
  check_floating("gate_weights", "scores", scores);
  check_sizes("gate_weights",
              "indices",
              "[T,k]",
              indices,
              {scores.size(0), -1},
              "pass the indices of the same tokens");
  check_dtype("gate_weights",
              "indices",
              indices,
              at::kInt,
              "pass what gate_select or gate_lookup returned");
}

void check_ascending(const at::Tensor& indices) {
  const int64_t k = indices.size(1);
  if (k < 2 || indices.size(0) == 0) return;
  const at::Tensor bad = (indices.narrow(1, 1, k - 1) <= indices.narrow(1, 0, k - 1)).any(1);
  LETHE_CHECK(DataError,
              !bad.any().item<bool>(),
              "gate_weights [expert ids]: indices must ascend strictly in every row, got token {} "
              "out of order or with "
              "one expert twice; sort them as gate_select and gate_lookup do",
              bad.to(at::kInt).argmax().item<int64_t>());
}

at::Tensor weights_forward(const at::Tensor& scores,
                           const at::Tensor& indices,
                           bool normalize,
                           double scale) {
  check_weights(scores, indices);
  check_expert_ids("gate_weights", indices, scores.size(1));
  check_ascending(indices);
  return reference::gate_weights(scores, indices, normalize, scale);
}

at::Tensor weights_meta(const at::Tensor& scores, const at::Tensor& indices, bool, double) {
  check_weights(scores, indices);
  return at::empty(indices.sizes(), scores.options());
}

// With S = sum(p) + 1e-20 and w = scale p / S:  dp = scale (dw - sum(dw p) / S) / S. The ids of a
// row are distinct, so the scatter writes every element once.
Tensors weights_backward(const BackwardInput& in, bool normalize, double scale) {
  const at::Tensor &scores = in.saved[0], ids = in.saved[1].to(at::kLong);
  at::Tensor dp = in.grads[0] * scale;
  if (normalize) {
    const at::Tensor p = scores.gather(-1, ids), sum = p.sum(-1, /*keepdim=*/true) + kScoreSumFloor;
    dp = (dp - (dp * p).sum(-1, /*keepdim=*/true) / sum) / sum;
  }
  return {at::zeros(scores.sizes(), scores.options()).scatter_(-1, ids, dp)};
}

at::Tensor weights_autograd(const at::Tensor& scores,
                            const at::Tensor& indices,
                            bool normalize,
                            double scale) {
  at::Tensor w;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    w = gate_weights(scores, indices, normalize, scale);
  }
  record("lethe::gate_weights",
         {scores},
         {w},
         {scores, indices},
         [normalize, scale](const BackwardInput& in) {
           return weights_backward(in, normalize, scale);
         });
  return w;
}

LETHE_REGISTER_OP(gate_scores,
                  "gate_scores(Tensor logits, str score_function) -> Tensor",
                  scores_forward,
                  scores_meta,
                  scores_autograd)
LETHE_REGISTER_OP(
    gate_weights,
    "gate_weights(Tensor scores, Tensor indices, bool normalize, float scale) -> Tensor",
    weights_forward,
    weights_meta,
    weights_autograd)

}  // namespace

at::Tensor gate_scores(const at::Tensor& logits, std::string_view score_function) {
  return LETHE_OP_HANDLE(gate_scores, at::Tensor(const at::Tensor&, std::string_view))
      .call(logits, score_function);
}

at::Tensor gate_weights(const at::Tensor& scores,
                        const at::Tensor& indices,
                        bool normalize,
                        double scale) {
  return LETHE_OP_HANDLE(gate_weights,
                         at::Tensor(const at::Tensor&, const at::Tensor&, bool, double))
      .call(scores, indices, normalize, scale);
}

}  // namespace lethe::ops
