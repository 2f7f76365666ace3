#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// What a compressor reads. coff = 2 for ratio 4, else 1; C = sum over documents of
/// floor(length / ratio); all floating tensors share one type, float32 or float64.
struct CompressorInputs {
  const at::Tensor& kv;              // [T, coff*d], any strides
  const at::Tensor& gate;            // [T, coff*d], any strides
  const at::Tensor& ape;             // [ratio, coff*d], added to the gate by position in the window
  const at::Tensor& norm_weight;     // [d]
  const at::Tensor& slot_positions;  // int64 [C], where each slot is rotated to
  const at::Tensor& inv_freq;        // float32 [rd/2], rd <= d
  const at::Tensor& cu_seqlens;      // int32 [N+1] on the CPU: document starts of the T tokens
};

struct CompressorRule {
  int64_t ratio = 0;  // >= 2
  double eps = 0;     // of the norm
};

/// Pools every complete window of `ratio` tokens into one normalised, rotated slot, per document:
///   e = sum_t softmax_t(gate + ape) * kv      per channel, over the tokens of the slot's window
///   slot = rope(rms_norm(e, norm_weight, eps), slot_positions, inv_freq)
/// For ratio 4 the windows overlap: channels [0,d) of the previous window and channels [d,2d) of
/// the slot's own window are 8 rows of one softmax; the first slot of a document has no previous
/// rows. The projections before it are the caller's.
///
/// Returns [C, d], slots in document order; C may be 0. Tokens after a document's last complete
/// window, and the previous half of its last window, get zero gradients. Saves its inputs only.
/// Differentiable in kv, gate, ape, norm_weight (defined zeros when C = 0); double backward: error.
/// Throws ShapeError, DtypeError. Float32 on the CPU: deterministic for any thread count.
/// Source: model spec 5.1, 5.2, 11.
at::Tensor compressor(const CompressorInputs& in, const CompressorRule& rule);

namespace reference {

at::Tensor compressor(const CompressorInputs& in, const CompressorRule& rule);

/// The first line of the definition alone: e [C, d].
at::Tensor pool_windows(const at::Tensor& kv,
                        const at::Tensor& gate,
                        const at::Tensor& ape,
                        const at::Tensor& cu_seqlens,
                        int64_t ratio);

}  // namespace reference

}  // namespace lethe::ops
