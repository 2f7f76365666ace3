#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/base/documents.h"

// Inside lethe/ops only: the rows that the compressor pools into each slot, shared by its
// definition and its gradient.
namespace lethe::ops {

/// The ratio whose windows overlap: a slot pools its own window and the one before.
inline constexpr int64_t kOverlapRatio = 4;

/// Channels per slot channel: one half for the previous window, one for the slot's own.
inline int64_t pool_halves(int64_t ratio) {
  return ratio == kOverlapRatio ? 2 : 1;
}

/// Complete windows of a packed row, C of them.
struct SlotWindows {
  at::Tensor tokens;    // int64 [C*r] row of every token of a complete window
  at::Tensor previous;  // int64 [C] window before this one; itself for the first slot of a document
  at::Tensor next;      // int64 [C] window after this one; itself for the last slot of a document
  at::Tensor first;     // bool [C,1,1] first slot of its document
  at::Tensor last;      // bool [C,1,1] last slot of its document
};

SlotWindows slot_windows(const Documents& documents, int64_t ratio, at::Device device);

/// The rows of one softmax per slot and channel: [C, m, d], m = r, or 2r when windows overlap.
/// `x` [T, coff*d]; `bias` [r, coff*d] or undefined; rows that do not exist hold `absent`.
/// There must be slots.
at::Tensor pooled_rows(const at::Tensor& x,
                       const at::Tensor& bias,
                       const SlotWindows& windows,
                       double absent);

/// The adjoint of pooled_rows without bias: rows [C, m, d] back to window order, [C, r, coff*d].
at::Tensor unpool_rows(const at::Tensor& rows, const SlotWindows& windows);

}  // namespace lethe::ops
