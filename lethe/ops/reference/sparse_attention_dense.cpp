#include <limits>

#include "lethe/ops/attention_keys.h"
#include "lethe/ops/sparse_attention.h"

namespace lethe::ops::reference {
namespace {

/// bool [T, T]: query t sees token u.
at::Tensor visible_tokens(const at::Tensor& document, const at::Tensor& row, int64_t window) {
  const at::Tensor distance = row.unsqueeze(1) - row;
  return (document.unsqueeze(1) == document)
      .logical_and(distance >= 0)
      .logical_and(distance < window);
}

/// bool [T, C]: query t reads slot j, by the rule and, if given, the indices.
at::Tensor visible_slots_of(const AttentionInputs& inputs,
                            const Documents& documents,
                            int64_t ratio) {
  const std::vector<int32_t> cu_slots = documents.cu_slots(ratio);
  const at::Tensor visible = at::zeros({documents.tokens(), cu_slots.back()}, at::kBool);
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t p = 0; p < documents.length(d); ++p)
      for (int64_t j = 0; j < (p + 1) / ratio; ++j)
        visible.data_ptr<bool>()[(documents.begin(d) + p) * cu_slots.back() +
                                 cu_slots[static_cast<size_t>(d)] + j] = true;
  const at::Tensor rule = visible.to(inputs.q.device());
  if (!inputs.indices) return rule;
  const at::Tensor slot = at::arange(cu_slots.back(), inputs.indices->options());
  return rule.logical_and((inputs.indices->unsqueeze(2) == slot).any(1));
}

at::Tensor document_of_token(const Documents& documents) {
  std::vector<int64_t> document;
  for (int64_t d = 0; d < documents.count(); ++d)
    document.insert(document.end(), static_cast<size_t>(documents.length(d)), d);
  return at::tensor(document, at::kLong);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> sparse_attention_dense(const AttentionInputs& inputs,
                                                          const AttentionRule& rule) {
  const at::Tensor& q = inputs.q;
  const Documents documents = check_attention("sparse_attention_dense", inputs, rule);
  const at::Tensor document = document_of_token(documents).to(q.device());
  at::Tensor keys = inputs.kv;
  at::Tensor visible =
      visible_tokens(document, at::arange(q.size(0), document.options()), rule.window);
  if (inputs.slots) {
    keys = at::cat({keys, *inputs.slots});
    visible = at::cat({visible, visible_slots_of(inputs, documents, rule.ratio)}, 1);
  }
  const at::Tensor logits =
      mask_hidden(at::matmul(q, keys.t()) * rule.scale, visible.logical_not());
  const at::Tensor sink = inputs.sink.unsqueeze(1).expand({q.size(0), q.size(1), 1});
  const at::Tensor with_sink = at::cat({logits, sink}, 2);
  const at::Tensor p = with_sink.softmax(2).narrow(2, 0, logits.size(2));
  return {at::matmul(p, keys), with_sink.logsumexp(2).detach()};
}

}  // namespace lethe::ops::reference
