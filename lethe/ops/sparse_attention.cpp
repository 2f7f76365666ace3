#include "lethe/ops/sparse_attention.h"

#include "lethe/core/node.h"
#include "lethe/ops/attention_keys.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/register.h"
#include "lethe/ops/sparse_attention_fused.h"
#include "lethe/ops/sparse_attention_grad.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kOp = "sparse_attention";

Fusable fusable(kOp);

AttentionResult forward(const at::Tensor& q,
                        const at::Tensor& kv,
                        const OptionalTensor& slots,
                        const OptionalTensor& indices,
                        const at::Tensor& sink,
                        const at::Tensor& cu_seqlens,
                        const OptionalTensor& positions,
                        const OptionalTensor& inv_freq,
                        int64_t window,
                        int64_t ratio,
                        double scale,
                        bool slot_mass) {
  const AttentionInputs inputs{q, kv, slots, indices, sink, cu_seqlens};
  const AttentionRule rule{window, ratio, scale};
  const AttentionOutput output{positions, inv_freq, slot_mass};
  const Documents documents = check_attention(kOp, inputs, rule);
  check_rotation(kOp, inputs, output);
  check_indices(kOp, inputs, documents, ratio);
  if (fusable.runs(q)) return sparse_attention_fused(inputs, rule, output);
  return reference::sparse_attention_gather(inputs, rule, output);
}

AttentionResult meta(const at::Tensor& q,
                     const at::Tensor& kv,
                     const OptionalTensor& slots,
                     const OptionalTensor& indices,
                     const at::Tensor& sink,
                     const at::Tensor& cu_seqlens,
                     const OptionalTensor& positions,
                     const OptionalTensor& inv_freq,
                     int64_t window,
                     int64_t ratio,
                     double scale,
                     bool slot_mass) {
  const AttentionInputs inputs{q, kv, slots, indices, sink, cu_seqlens};
  check_attention(kOp, inputs, {window, ratio, scale});
  const AttentionOutput output{positions, inv_freq, slot_mass};
  check_rotation(kOp, inputs, output);
  return {at::empty(q.sizes(), q.options()),
          at::empty({q.size(0), q.size(1)}, q.options()),
          empty_slot_mass(inputs, output)};
}

OptionalTensor if_defined(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

/// saved: q, kv, slots, indices, sink, cu_seqlens, positions, inv_freq, o, lse_with_sink.
Tensors backward(const BackwardInput& in, const AttentionRule& rule, bool fused) {
  const auto& s = in.saved;
  const OptionalTensor slots = if_defined(s[2]), indices = if_defined(s[3]);
  const AttentionInputs inputs{s[0], s[1], slots, indices, s[4], s[5]};
  const AttentionOutput output{if_defined(s[6]), if_defined(s[7])};
  const AttentionGradInput grad{in.grads[0], s[8], s[9]};
  return fused ? sparse_attention_fused_gradients(inputs, rule, output, grad)
               : sparse_attention_gradients(inputs, rule, output, grad);
}

AttentionResult autograd(const at::Tensor& q,
                         const at::Tensor& kv,
                         const OptionalTensor& slots,
                         const OptionalTensor& indices,
                         const at::Tensor& sink,
                         const at::Tensor& cu_seqlens,
                         const OptionalTensor& positions,
                         const OptionalTensor& inv_freq,
                         int64_t window,
                         int64_t ratio,
                         double scale,
                         bool slot_mass) {
  const AttentionRule rule{window, ratio, scale};
  AttentionResult result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = sparse_attention(
        {q, kv, slots, indices, sink, cu_seqlens}, rule, {positions, inv_freq, slot_mass});
  }
  const at::Tensor &o = std::get<0>(result), &lse_with_sink = std::get<1>(result);
  const auto tensor = [](const OptionalTensor& t) { return t.value_or(at::Tensor()); };
  record("lethe::sparse_attention",
         {q, kv, tensor(slots), sink},
         {o},
         {q,
          kv,
          tensor(slots),
          tensor(indices),
          sink,
          cu_seqlens,
          tensor(positions),
          tensor(inv_freq),
          o,
          lse_with_sink},
         [rule, fused = fusable.would_run(q)](const BackwardInput& in) {
           return backward(in, rule, fused);
         });
  return result;
}

LETHE_REGISTER_OP(
    sparse_attention,
    "sparse_attention(Tensor q, Tensor kv, Tensor? slots, Tensor? indices, Tensor sink, "
    "Tensor cu_seqlens, Tensor? positions, Tensor? inv_freq, int window, int ratio, float scale, "
    "bool slot_mass) -> (Tensor o, Tensor lse_with_sink, Tensor slot_mass)",
    forward,
    meta,
    autograd)

}  // namespace

AttentionResult sparse_attention(const AttentionInputs& inputs,
                                 const AttentionRule& rule,
                                 const AttentionOutput& output) {
  using Signature = AttentionResult(const at::Tensor&,
                                    const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    const at::Tensor&,
                                    const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    int64_t,
                                    int64_t,
                                    double,
                                    bool);
  return LETHE_OP_HANDLE(sparse_attention, Signature)
      .call(inputs.q,
            inputs.kv,
            inputs.slots,
            inputs.indices,
            inputs.sink,
            inputs.cu_seqlens,
            output.positions,
            output.inv_freq,
            rule.window,
            rule.ratio,
            rule.scale,
            output.slot_mass);
}

}  // namespace lethe::ops
