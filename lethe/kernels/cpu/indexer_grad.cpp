#include "lethe/kernels/cpu/indexer_grad.h"

#include <algorithm>

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, indexer_values, IndexerValues)
LETHE_DISPATCH_ISA(void, indexer_backward, IndexerBackward)

int64_t keys_per_tile(const IndexerGradients& g) {
  return g.indices == nullptr ? std::min(kDenseKeys, g.width) : g.width;
}

int64_t head_stride(int64_t heads) {
  return (heads + 15) / 16 * 16;
}

int64_t head_panel_floats(int64_t heads, int64_t dim) {
  constexpr int64_t kWidestPanel = 32;
  return (heads + kWidestPanel - 1) / kWidestPanel * kWidestPanel * dim;
}

int64_t queries_per_step(const IndexerGradients& g) {
  constexpr int64_t kFloatsOfProducts = 1 << 16;
  const int64_t products = std::max<int64_t>(1, keys_per_tile(g) * head_stride(g.in.heads));
  return g.parallel.threads * std::clamp<int64_t>(kFloatsOfProducts / products, 2, 16);
}

int64_t indexer_grad_scratch_floats(const IndexerGradients& g) {
  const int64_t keys = head_stride(keys_per_tile(g)), stride = head_stride(g.in.heads);
  const int64_t per_query = 16 + keys * (2 + stride);
  const int64_t per_thread = head_panel_floats(g.in.heads, g.in.dim) + keys;
  return queries_per_step(g) * per_query + g.parallel.threads * per_thread;
}

}  // namespace lethe::kernels
