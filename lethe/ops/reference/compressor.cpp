#include "lethe/ops/compressor.h"

#include <limits>

#include "lethe/ops/packed_row.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops::reference {

at::Tensor pool_windows(const at::Tensor& kv,
                        const at::Tensor& gate,
                        const at::Tensor& ape,
                        const at::Tensor& cu_seqlens,
                        int64_t ratio) {
  const Documents documents = documents_of("compressor", cu_seqlens, kv.size(0));
  const SlotWindows windows = slot_windows(documents, ratio, kv.device());
  if (windows.tokens.numel() == 0)
    return at::zeros({0, kv.size(1) / pool_halves(ratio)}, kv.options());
  const at::Tensor gates =
      pooled_rows(gate, ape, windows, -std::numeric_limits<double>::infinity());
  return (gates.softmax(1) * pooled_rows(kv, {}, windows, 0.0)).sum(1);
}

at::Tensor compressor(const CompressorInputs& in, const CompressorRule& rule) {
  const at::Tensor pooled = pool_windows(in.kv, in.gate, in.ape, in.cu_seqlens, rule.ratio);
  return rope(rms_norm(pooled, in.norm_weight, rule.eps),
              in.slot_positions,
              in.inv_freq,
              /*inverse=*/false);
}

}  // namespace lethe::ops::reference
