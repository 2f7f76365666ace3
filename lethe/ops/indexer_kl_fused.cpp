#include "lethe/kernels/cpu/indexer_kl.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/indexer_fused.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {
namespace {

at::Tensor contiguous_or_none(const at::Tensor* t) {
  return t != nullptr ? t->contiguous() : at::Tensor();
}

const float* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_indexer_kl(
    const KlTeacher& teacher, const IndexerInputs& index, const Documents& documents) {
  const AttentionInputs& attention = teacher.attention;
  const int64_t ratio = teacher.rule.ratio;
  const IndexerTensors t(index, documents, ratio);
  const int64_t width =
      attention.indices ? attention.indices->size(1) : most_slots(documents, ratio);
  IndexerGradientTensors grads(t, attention.indices, width);
  const at::Tensor q = attention.q.contiguous(), kv = attention.kv.contiguous();
  const at::Tensor slots = attention.slots->contiguous(), sink = attention.sink.contiguous();
  const at::Tensor lse = contiguous_or_none(teacher.lse ? &*teacher.lse : nullptr);
  const at::Tensor mass = contiguous_or_none(teacher.slot_mass);
  double loss = 0;
  kernels::IndexerKl kl{.g = grads.g,
                        .heads = q.size(1),
                        .dim = q.size(2),
                        .window = teacher.rule.window,
                        .scale = static_cast<float>(teacher.rule.scale),
                        .joint = teacher.joint,
                        .q = q.const_data_ptr<float>(),
                        .kv = kv.const_data_ptr<float>(),
                        .slots = slots.const_data_ptr<float>(),
                        .sink = sink.const_data_ptr<float>(),
                        .lse = data_or_null(lse),
                        .mass = data_or_null(mass),
                        .loss = &loss};
  const at::Tensor space = scratch(kernels::indexer_kl_scratch_floats(kl));
  kl.g.scratch = space.data_ptr<float>();
  kernels::indexer_kl(kl);
  return {grads.q, grads.k, grads.w, at::full({1}, loss, t.q.options())};
}

}  // namespace lethe::ops
