#include "lethe/ops/compressor_fused.h"

#include <array>

#include "lethe/kernels/cpu/compressor.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/rotation.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops {
namespace {

// Tensors and vectors that a call of the kernel points into.
class KernelInputs {
 public:
  // inputs: kv, gate, ape, norm_weight, slot_positions, inv_freq.
  KernelInputs(const Tensors& inputs, const Documents& documents, const CompressorRule& rule)
      : documents_(documents),
        cu_slots_(documents.cu_slots(rule.ratio)),
        rule_(rule),
        rotation_(inputs[4], inputs[5]) {
    for (size_t i = 0; i < floating_.size(); ++i) floating_[i] = inputs[i].contiguous();
    scratch_ = scratch(kernels::compressor_scratch_floats(width(), aten_pool().threads));
  }

  [[nodiscard]] int64_t width() const { return floating_[3].numel(); }

  [[nodiscard]] kernels::CompressorInputs view() const {
    return {.documents = documents_.count(),
            .slots = cu_slots_.back(),
            .ratio = rule_.ratio,
            .width = width(),
            .overlap = rule_.ratio == kOverlapRatio,
            .cu_seqlens = documents_.cu_seqlens().data(),
            .cu_slots = cu_slots_.data(),
            .kv = floating_[0].const_data_ptr<float>(),
            .gate = floating_[1].const_data_ptr<float>(),
            .ape = floating_[2].const_data_ptr<float>(),
            .norm_weight = floating_[3].const_data_ptr<float>(),
            .eps = static_cast<float>(rule_.eps),
            .rotary = rotation_.rotary()};
  }

  [[nodiscard]] float* scratch_data() const { return scratch_.data_ptr<float>(); }

 private:
  const Documents& documents_;
  std::vector<int32_t> cu_slots_;
  CompressorRule rule_;
  Rotation rotation_;
  std::array<at::Tensor, 4> floating_;
  at::Tensor scratch_;
};

}  // namespace

at::Tensor fused_compressor(const CompressorInputs& in,
                            const Documents& documents,
                            const CompressorRule& rule) {
  const KernelInputs inputs(
      {in.kv, in.gate, in.ape, in.norm_weight, in.slot_positions, in.inv_freq}, documents, rule);
  at::Tensor slots = at::empty({in.slot_positions.numel(), inputs.width()}, in.kv.options());
  kernels::compressor_forward({.parallel = aten_pool(),
                               .in = inputs.view(),
                               .slots = slots.data_ptr<float>(),
                               .scratch = inputs.scratch_data()});
  return slots;
}

Tensors fused_compressor_gradient(const BackwardInput& in,
                                  const Documents& documents,
                                  const CompressorRule& rule) {
  const KernelInputs inputs(in.saved, documents, rule);
  const at::Tensor d_slots = in.grads[0].contiguous();
  Tensors grads(6);
  for (size_t i = 0; i < 4; ++i) grads[i] = at::empty(in.saved[i].sizes(), in.saved[i].options());
  const kernels::CompressorInputs view = inputs.view();
  const at::Tensor partials = scratch(kernels::compressor_partial_floats(view));
  kernels::compressor_backward({.parallel = aten_pool(),
                                .in = view,
                                .d_slots = d_slots.const_data_ptr<float>(),
                                .d_kv = grads[0].data_ptr<float>(),
                                .d_gate = grads[1].data_ptr<float>(),
                                .d_ape = grads[2].data_ptr<float>(),
                                .d_norm_weight = grads[3].data_ptr<float>(),
                                .partials = partials.data_ptr<float>(),
                                .scratch = inputs.scratch_data()});
  return grads;
}

}  // namespace lethe::ops
