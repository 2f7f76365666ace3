#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Gated pooling of every complete window of `ratio` tokens into one slot, per document.
/// Per channel: e = sum_t softmax_t(gate + ape) * kv over the tokens of the slot's window. For
/// ratio 4 the windows overlap: channels [0,d) of the previous window and channels [d,2d) of the
/// slot's own window are 8 rows of one softmax; the first slot of a document has no previous rows
/// (gate -inf, value 0). The projections before it and the norm and rotation after it are the
/// caller's.
///
/// kv, gate    [T, coff*d] float32 | float64, coff = 2 for ratio 4, else 1; any strides
/// ape         [ratio, coff*d] same dtype, added to the gate by position inside the window
/// cu_seqlens  int32 [N+1] on the CPU: document starts of the T tokens
/// ratio       >= 2
/// Returns e [C, d], C = sum over documents of floor(length / ratio), slots in document order; C
/// may be 0. Tokens after a document's last complete window, and the previous half of its last
/// window, get zero gradients. Differentiable in kv, gate, ape (defined zeros when C = 0); double
/// backward: error. Throws ShapeError, DtypeError. Deterministic. Source: model spec 5.1, 5.2, 11.
at::Tensor compress(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio);

namespace reference {
at::Tensor compress(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio);
}

}  // namespace lethe::ops
