#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/base/documents.h"
#include "lethe/core/node.h"
#include "lethe/kernels/cpu/indexer_grad.h"
#include "lethe/ops/indexer_kl.h"

// Inside lethe/ops only: the indexer's kernels behind tensors, float32 on the CPU. The arguments
// are checked.
namespace lethe::ops {

/// Contiguous inputs as a kernel reads them; `documents` must outlive it.
struct IndexerTensors {
  IndexerTensors(const IndexerInputs& inputs, const Documents& documents, int64_t ratio);

  at::Tensor q, k, w;
  std::vector<int32_t> cu_slots;
  kernels::PackedSlots rows;
  kernels::IndexerArrays in;
};

/// Gradients of the three inputs in memory of their own, and the kernel's view of them.
struct IndexerGradientTensors {
  IndexerGradientTensors(const IndexerTensors& t,
                         const std::optional<at::Tensor>& indices,
                         int64_t width);

  at::Tensor indices, q, k, w;
  kernels::IndexerGradients g;  // without scratch
};

at::Tensor fused_indexer_scores(const IndexerInputs& inputs,
                                const Documents& documents,
                                int64_t ratio);

std::tuple<at::Tensor, at::Tensor> fused_lightning_indexer(const IndexerInputs& inputs,
                                                           const Documents& documents,
                                                           int64_t ratio,
                                                           const IndexerChoice& choice);

/// {d_q, d_k, d_w} for d [T, *] over the columns of `indices`, or of all slots of a document.
Tensors fused_indexer_backward(const IndexerInputs& inputs,
                               const Documents& documents,
                               int64_t ratio,
                               const std::optional<at::Tensor>& indices,
                               const at::Tensor& d);

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_indexer_kl(
    const KlTeacher& teacher, const IndexerInputs& index, const Documents& documents);

}  // namespace lethe::ops
