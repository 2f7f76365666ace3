#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/base/documents.h"

namespace lethe {

/// The inputs of one forward pass, all tokens of all rows flat, divided into documents.
/// Read-only for the model: nothing of a micro-batch is kept by any module (spec 5 D2).
struct MicroBatch {
  Documents documents;
  at::Tensor ids;         // int64 [T] on the model's device
  at::Tensor labels;      // int64 [T]: the next token, kIgnoredLabel = not counted
  at::Tensor positions;   // int64 [T], restart at 0 in each document
  at::Tensor cu_seqlens;  // int32 [N+1] on the CPU
  std::map<int64_t, at::Tensor> slot_positions;  // by ratio: int64 [C], j * ratio

  [[nodiscard]] int64_t tokens() const { return documents.tokens(); }
};

/// Builds the tensors. ids, labels: [T]; cu_seqlens: [N+1] (see Documents); ratios: those of the
/// model. Throws ShapeError when the sizes disagree.
MicroBatch make_micro_batch(std::span<const int64_t> ids,
                            std::span<const int64_t> labels,
                            std::span<const int32_t> cu_seqlens,
                            std::span<const int64_t> ratios,
                            at::Device device = at::kCPU);

/// values shifted left by `by` inside each document, `fill` at its end (model spec 10: MTP inputs
/// and labels).
at::Tensor shift_left(const at::Tensor& values,
                      const Documents& documents,
                      int64_t by,
                      int64_t fill);

}  // namespace lethe
