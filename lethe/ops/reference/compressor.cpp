#include "lethe/ops/compressor.h"

#include <limits>

#include "lethe/ops/packed_row.h"
#include "lethe/ops/window_pool.h"

namespace lethe::ops::reference {

at::Tensor compress(const at::Tensor& kv,
                    const at::Tensor& gate,
                    const at::Tensor& ape,
                    const at::Tensor& cu_seqlens,
                    int64_t ratio) {
  const Documents documents = documents_of("compress", cu_seqlens, kv.size(0));
  const SlotWindows windows = slot_windows(documents, ratio, kv.device());
  if (windows.tokens.numel() == 0)
    return at::zeros({0, kv.size(1) / pool_halves(ratio)}, kv.options());
  const at::Tensor gates =
      pooled_rows(gate, ape, windows, -std::numeric_limits<double>::infinity());
  return (gates.softmax(1) * pooled_rows(kv, {}, windows, 0.0)).sum(1);
}

}  // namespace lethe::ops::reference
