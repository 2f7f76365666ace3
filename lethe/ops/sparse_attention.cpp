#include "lethe/ops/sparse_attention.h"

#include "lethe/core/node.h"
#include "lethe/ops/attention_keys.h"
#include "lethe/ops/register.h"
#include "lethe/ops/sparse_attention_grad.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using OutputAndLse = std::tuple<at::Tensor, at::Tensor>;

constexpr const char* kOp = "sparse_attention";

OutputAndLse forward(const at::Tensor& q,
                     const at::Tensor& kv,
                     const OptionalTensor& slots,
                     const OptionalTensor& indices,
                     const at::Tensor& sink,
                     const at::Tensor& cu_seqlens,
                     int64_t window,
                     int64_t ratio,
                     double scale) {
  const AttentionInputs inputs{q, kv, slots, indices, sink, cu_seqlens};
  const Documents documents = check_attention(kOp, inputs, {window, ratio, scale});
  check_indices(kOp, inputs, documents, ratio);
  return reference::sparse_attention_gather(inputs, {window, ratio, scale});
}

OutputAndLse meta(const at::Tensor& q,
                  const at::Tensor& kv,
                  const OptionalTensor& slots,
                  const OptionalTensor& indices,
                  const at::Tensor& sink,
                  const at::Tensor& cu_seqlens,
                  int64_t window,
                  int64_t ratio,
                  double scale) {
  check_attention(kOp, {q, kv, slots, indices, sink, cu_seqlens}, {window, ratio, scale});
  return {at::empty(q.sizes(), q.options()), at::empty({q.size(0), q.size(1)}, q.options())};
}

OptionalTensor if_defined(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

/// saved: q, kv, slots, indices, sink, cu_seqlens, o, lse_with_sink.
Tensors backward(const BackwardInput& in, const AttentionRule& rule) {
  const auto& s = in.saved;
  const OptionalTensor slots = if_defined(s[2]), indices = if_defined(s[3]);
  return sparse_attention_gradients(
      {s[0], s[1], slots, indices, s[4], s[5]}, rule, in.grads[0], s[6], s[7]);
}

OutputAndLse autograd(const at::Tensor& q,
                      const at::Tensor& kv,
                      const OptionalTensor& slots,
                      const OptionalTensor& indices,
                      const at::Tensor& sink,
                      const at::Tensor& cu_seqlens,
                      int64_t window,
                      int64_t ratio,
                      double scale) {
  const AttentionRule rule{window, ratio, scale};
  at::Tensor o, lse_with_sink;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::tie(o, lse_with_sink) = sparse_attention({q, kv, slots, indices, sink, cu_seqlens}, rule);
  }
  const at::Tensor some_slots = slots.value_or(at::Tensor()), ids = indices.value_or(at::Tensor());
  record("lethe::sparse_attention",
         {q, kv, some_slots, sink},
         {o},
         {q, kv, some_slots, ids, sink, cu_seqlens, o, lse_with_sink},
         [rule](const BackwardInput& in) { return backward(in, rule); });
  return {o, lse_with_sink};
}

LETHE_REGISTER_OP(
    sparse_attention,
    "sparse_attention(Tensor q, Tensor kv, Tensor? slots, Tensor? indices, Tensor sink, "
    "Tensor cu_seqlens, int window, int ratio, float scale) -> (Tensor o, Tensor lse_with_sink)",
    forward,
    meta,
    autograd)

}  // namespace

OutputAndLse sparse_attention(const AttentionInputs& inputs, const AttentionRule& rule) {
  using Signature = OutputAndLse(const at::Tensor&,
                                 const at::Tensor&,
                                 const OptionalTensor&,
                                 const OptionalTensor&,
                                 const at::Tensor&,
                                 const at::Tensor&,
                                 int64_t,
                                 int64_t,
                                 double);
  return LETHE_OP_HANDLE(sparse_attention, Signature)
      .call(inputs.q,
            inputs.kv,
            inputs.slots,
            inputs.indices,
            inputs.sink,
            inputs.cu_seqlens,
            rule.window,
            rule.ratio,
            rule.scale);
}

}  // namespace lethe::ops
