#include "lethe/ops/sparse_attention_fused.h"

#include "lethe/kernels/cpu/sparse_attention.h"
#include "lethe/ops/attention_keys.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// The kernel's view of the inputs, and what it points into.
class KernelInputs {
 public:
  KernelInputs(const AttentionInputs& inputs,
               const AttentionRule& rule,
               const AttentionOutput& output)
      : documents_(documents_of("sparse_attention", inputs.cu_seqlens, inputs.q.size(0))) {
    if (rule.ratio > 0) cu_slots_ = documents_.cu_slots(rule.ratio);
    // No column names no slot: as without slots, while an absent pointer would mean all of them.
    const bool none_named = inputs.indices && inputs.indices->size(1) == 0;
    view = {.heads = inputs.q.size(1),
            .width = inputs.q.size(2),
            .window = rule.window,
            .ratio = none_named ? 0 : rule.ratio,
            .scale = static_cast<float>(rule.scale),
            .documents = documents_.count(),
            .cu_seqlens = documents_.cu_seqlens().data(),
            .cu_slots = cu_slots_.data(),
            .q = data<float>(inputs.q),
            .kv = data<float>(inputs.kv),
            .slots = data<float>(inputs.slots),
            .sink = data<float>(inputs.sink),
            .indices = data<int32_t>(inputs.indices),
            .topk = inputs.indices ? inputs.indices->size(1) : 0,
            .positions = data<int64_t>(output.positions),
            .inv_freq = data<float>(output.inv_freq),
            .num_pairs = output.inv_freq ? output.inv_freq->numel() : 0};
  }

  KernelInputs(const KernelInputs&) = delete;
  KernelInputs& operator=(const KernelInputs&) = delete;

  kernels::SparseAttentionInputs view{};

 private:
  template <class T>
  const T* data(const OptionalTensor& t) {
    return t ? kept_.emplace_back(t->contiguous()).const_data_ptr<T>() : nullptr;
  }

  Documents documents_;
  std::vector<int32_t> cu_slots_;
  Tensors kept_;
};

}  // namespace

AttentionResult sparse_attention_fused(const AttentionInputs& inputs,
                                       const AttentionRule& rule,
                                       const AttentionOutput& output) {
  const KernelInputs in(inputs, rule, output);
  const auto options = inputs.q.options();
  at::Tensor o = at::empty(inputs.q.sizes(), options);
  at::Tensor lse_with_sink = at::empty({inputs.q.size(0), inputs.q.size(1)}, options);
  at::Tensor slot_mass = empty_slot_mass(inputs, output);
  const kernels::Parallel pool = aten_pool();
  const at::Tensor temporary = scratch(
      kernels::sparse_attention_scratch({in.view, pool.threads, /*backward=*/false}).floats);
  kernels::sparse_attention_forward(
      {.parallel = pool,
       .in = in.view,
       .o = o.data_ptr<float>(),
       .lse = lse_with_sink.data_ptr<float>(),
       .slot_mass = slot_mass.dim() == 2 ? slot_mass.data_ptr<float>() : nullptr,
       .scratch = temporary.data_ptr<float>()});
  return {o, lse_with_sink, slot_mass};
}

Tensors sparse_attention_fused_gradients(const AttentionInputs& inputs,
                                         const AttentionRule& rule,
                                         const AttentionOutput& output,
                                         const AttentionGradInput& grad) {
  const KernelInputs in(inputs, rule, output);
  const auto options = inputs.q.options();
  const at::Tensor d_o = grad.d_o.contiguous(), o = grad.o.contiguous(),
                   lse = grad.lse_with_sink.contiguous();
  at::Tensor d_q = at::empty(inputs.q.sizes(), options);
  at::Tensor d_kv = at::zeros(inputs.kv.sizes(), options);
  at::Tensor d_slots = inputs.slots ? at::zeros(inputs.slots->sizes(), options) : at::Tensor();
  at::Tensor d_sink = at::empty(inputs.sink.sizes(), options);
  const kernels::Parallel pool = aten_pool();
  const auto sizes = kernels::sparse_attention_scratch({in.view, pool.threads, /*backward=*/true});
  const at::Tensor temporary = scratch(sizes.floats);
  const at::Tensor key_ids = at::empty({sizes.key_ids}, at::kInt);
  kernels::sparse_attention_backward(
      {.parallel = pool,
       .in = in.view,
       .o = o.const_data_ptr<float>(),
       .lse = lse.const_data_ptr<float>(),
       .d_o = d_o.const_data_ptr<float>(),
       .d_q = d_q.data_ptr<float>(),
       .d_kv = d_kv.data_ptr<float>(),
       .d_slots = d_slots.defined() ? d_slots.data_ptr<float>() : nullptr,
       .d_sink = d_sink.data_ptr<float>(),
       .scratch = temporary.data_ptr<float>(),
       .key_ids = key_ids.data_ptr<int32_t>()});
  return {d_q, d_kv, d_slots, d_sink};
}

}  // namespace lethe::ops
