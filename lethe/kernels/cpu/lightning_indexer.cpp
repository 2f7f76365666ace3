#include "lethe/kernels/cpu/lightning_indexer.h"

#include <algorithm>

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, lightning_indexer, LightningIndexer)
LETHE_DISPATCH_ISA(void, indexer_scores, IndexerScores)

int64_t index_block_queries(const IndexerArrays& in) {
  constexpr int64_t kFloatsOfQueries = 1 << 16;
  return std::clamp<int64_t>(kFloatsOfQueries / std::max<int64_t>(1, in.heads * in.dim), 4, 32);
}

int64_t lightning_indexer_scratch_floats(const IndexerArrays& in, int64_t width, int threads) {
  const int64_t keys = in.dim * kIndexTileSlots;
  const int64_t per_query = kIndexTileSlots + (width > 0 ? 2 * candidate_capacity(width) : 0);
  return threads * (keys + index_block_queries(in) * per_query);
}

}  // namespace lethe::kernels
