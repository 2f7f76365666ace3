#include "lethe/ops/indexer_fused.h"

#include <algorithm>

#include "lethe/kernels/cpu/lightning_indexer.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {

IndexerTensors::IndexerTensors(const IndexerInputs& inputs,
                               const Documents& documents,
                               int64_t ratio)
    : q(inputs.q.contiguous()),
      k(inputs.k.contiguous()),
      w(inputs.w.contiguous()),
      cu_slots(documents.cu_slots(ratio)),
      rows{documents.count(), documents.cu_seqlens().data(), cu_slots.data(), ratio},
      in{q.size(1),
         q.size(2),
         q.const_data_ptr<float>(),
         k.const_data_ptr<float>(),
         w.const_data_ptr<float>()} {}

IndexerGradientTensors::IndexerGradientTensors(const IndexerTensors& t,
                                               const std::optional<at::Tensor>& listed,
                                               int64_t width)
    : indices(listed ? listed->contiguous() : at::Tensor()),
      q(at::empty_like(t.q)),
      k(at::empty_like(t.k)),
      w(at::empty_like(t.w)),
      g{.parallel = aten_pool(),
        .rows = t.rows,
        .in = t.in,
        .width = width,
        .indices = listed ? indices.const_data_ptr<int32_t>() : nullptr,
        .d_q = q.data_ptr<float>(),
        .d_k = k.data_ptr<float>(),
        .d_w = w.data_ptr<float>(),
        .scratch = nullptr} {}

at::Tensor fused_indexer_scores(const IndexerInputs& inputs,
                                const Documents& documents,
                                int64_t ratio) {
  const IndexerTensors t(inputs, documents, ratio);
  at::Tensor scores = at::empty({t.q.size(0), most_slots(documents, ratio)}, t.q.options());
  if (scores.numel() == 0) return scores;
  const kernels::Parallel pool = aten_pool();
  const at::Tensor space =
      scratch(kernels::lightning_indexer_scratch_floats(t.in, /*width=*/0, pool.threads));
  kernels::indexer_scores({.parallel = pool,
                           .rows = t.rows,
                           .in = t.in,
                           .width = scores.size(1),
                           .scores = scores.data_ptr<float>(),
                           .scratch = space.data_ptr<float>()});
  return scores;
}

namespace {

at::Tensor values_of(const IndexerTensors& t, const at::Tensor& indices) {
  at::Tensor values = at::empty(indices.sizes(), t.q.options());
  kernels::IndexerGradients g{.parallel = aten_pool(),
                              .rows = t.rows,
                              .in = t.in,
                              .width = indices.size(1),
                              .indices = indices.const_data_ptr<int32_t>(),
                              .d_q = nullptr,
                              .d_k = nullptr,
                              .d_w = nullptr,
                              .scratch = nullptr};
  const at::Tensor space = scratch(kernels::indexer_grad_scratch_floats(g));
  g.scratch = space.data_ptr<float>();
  kernels::indexer_values({.g = g, .values = values.data_ptr<float>()});
  return values;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> fused_lightning_indexer(const IndexerInputs& inputs,
                                                           const Documents& documents,
                                                           int64_t ratio,
                                                           const IndexerChoice& choice) {
  const IndexerTensors t(inputs, documents, ratio);
  const at::TensorOptions options = t.q.options();
  if (choice.given != nullptr) {
    const at::Tensor indices = choice.given->clone(at::MemoryFormat::Contiguous);
    return {indices, choice.return_values ? values_of(t, indices) : at::empty({0}, options)};
  }
  const std::vector<int64_t> sizes{t.q.size(0),
                                   std::min(choice.topk, most_slots(documents, ratio))};
  at::Tensor indices = at::empty(sizes, options.dtype(at::kInt));
  at::Tensor values = choice.return_values ? at::empty(sizes, options) : at::empty({0}, options);
  if (indices.numel() == 0) return {indices, values};
  const kernels::Parallel pool = aten_pool();
  const at::Tensor space =
      scratch(kernels::lightning_indexer_scratch_floats(t.in, sizes[1], pool.threads));
  kernels::lightning_indexer({.parallel = pool,
                              .rows = t.rows,
                              .in = t.in,
                              .width = sizes[1],
                              .indices = indices.data_ptr<int32_t>(),
                              .values = choice.return_values ? values.data_ptr<float>() : nullptr,
                              .scratch = space.data_ptr<float>()});
  return {indices, values};
}

Tensors fused_indexer_backward(const IndexerInputs& inputs,
                               const Documents& documents,
                               int64_t ratio,
                               const std::optional<at::Tensor>& indices,
                               const at::Tensor& d) {
  const IndexerTensors t(inputs, documents, ratio);
  const at::Tensor d_scores = d.contiguous();
  IndexerGradientTensors grads(t, indices, d_scores.size(1));
  const at::Tensor space = scratch(kernels::indexer_grad_scratch_floats(grads.g));
  grads.g.scratch = space.data_ptr<float>();
  kernels::indexer_backward({.g = grads.g, .d_scores = d_scores.const_data_ptr<float>()});
  return {grads.q, grads.k, grads.w};
}

}  // namespace lethe::ops
