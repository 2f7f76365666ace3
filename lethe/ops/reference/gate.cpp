#include "lethe/ops/gate.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sort.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/score_function.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor, at::Tensor> gate(const at::Tensor& x,
                                                    const at::Tensor& weight,
                                                    const std::optional<at::Tensor>& bias,
                                                    const std::optional<at::Tensor>& given,
                                                    const GateOptions& options) {
  const at::Tensor scores =
      gate_scores(at::mm(widen(x), widen(weight).t()), options.score_function);
  const at::Tensor indices =
      given ? given->clone(at::MemoryFormat::Contiguous) : gate_select(scores, bias, options.k);
  return {gate_weights(scores, indices, options.normalize, options.scale), indices, scores};
}

at::Tensor gate_scores(const at::Tensor& logits, std::string_view score_function) {
  switch (parse_score_function(score_function)) {
    case ScoreFunction::Sigmoid:
      return logits.sigmoid().contiguous();
    case ScoreFunction::Softmax:
      return at::softmax(logits, -1).contiguous();
    case ScoreFunction::SqrtSoftplus:
      break;
  }
  return at::softplus(logits, /*beta=*/1, kSoftplusThreshold).sqrt().contiguous();
}

at::Tensor gate_select(const at::Tensor& scores, const std::optional<at::Tensor>& bias, int64_t k) {
  // Adding 0 turns -0 into +0, which a radix sort would rank below it.
  const at::Tensor ranked = (bias ? scores + *bias : scores) + 0.0;
  const at::Tensor by_score =
      std::get<1>(at::sort(ranked, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return std::get<0>(by_score.narrow(-1, 0, k).sort(-1)).to(at::kInt);
}

at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table) {
  return std::get<0>(table.index_select(0, token_ids).sort(-1));
}

at::Tensor gate_weights(const at::Tensor& scores,
                        const at::Tensor& indices,
                        bool normalize,
                        double scale) {
  const at::Tensor chosen = scores.gather(-1, indices.to(at::kLong));
  return normalize ? chosen / (chosen.sum(-1, /*keepdim=*/true) + kScoreSumFloor) * scale
                   : chosen * scale;
}

at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts) {
  return at::bincount(indices.reshape({-1}), {}, num_experts);
}

}  // namespace lethe::ops::reference
