#include "lethe/kernels/cpu/indexer_kl.h"

#include <algorithm>

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, indexer_kl, IndexerKl)

int64_t indexer_kl_scratch_floats(const IndexerKl& a) {
  const int64_t stride = head_stride(a.heads), keys = head_stride(keys_per_tile(a.g));
  const int64_t per_query = 16 + 4 * stride;
  const int64_t products = std::max(keys, kDenseKeys) * stride;
  const int64_t per_thread =
      head_panel_floats(a.heads, a.dim) + products + stride + 2 * keys + kDenseKeys;
  return indexer_grad_scratch_floats(a.g) + queries_per_step(a.g) * per_query +
         a.g.parallel.threads * per_thread;
}

}  // namespace lethe::kernels
