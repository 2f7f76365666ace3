#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/indexer_arrays.h"
#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// The `width` best slots of every query: higher score first, on equal score the lower slot, -0 as
/// +0, NaN never. Scores live in tiles of some queries times some slots.
///   indices  int32 [T, width]: rows of k, ascending, then -1
///   values   [T, width]: their scores, -inf at -1; or nullptr. Without values a query that sees at
///            most `width` slots takes them all unscored, those of score NaN included.
///   scratch  lightning_indexer_scratch_floats(in, width, threads) floats
/// Source: spec 2 5.4.
struct LightningIndexer {
  Parallel parallel;
  PackedSlots rows;
  IndexerArrays in;
  int64_t width;  // >= 1
  int32_t* indices;
  float* values;
  float* scratch;
};

void lightning_indexer(const LightningIndexer& a);
[[nodiscard]] int64_t lightning_indexer_scratch_floats(const IndexerArrays& in,
                                                       int64_t width,
                                                       int threads);

/// Scores of every slot of a query's document: scores [T, width], column = slot counted from the
/// document's first, -inf where the query does not see it. width = most slots of any document.
/// scratch: lightning_indexer_scratch_floats(in, 0, threads) floats.
struct IndexerScores {
  Parallel parallel;
  PackedSlots rows;
  IndexerArrays in;
  int64_t width;
  float* scores;
  float* scratch;
};

void indexer_scores(const IndexerScores& a);

// What the variants of these kernels agree on.

/// Slots per tile of scores: whole panels of vectors for every instruction set.
inline constexpr int64_t kIndexTileSlots = 192;

/// Queries that share a tile of keys, in [4, 32]: their q fills a part of the L2 cache.
[[nodiscard]] int64_t index_block_queries(const IndexerArrays& in);

/// Candidates per query: at most width + width / 4 stay when room is made for one more tile.
inline constexpr int64_t candidate_capacity(int64_t width) {
  return 2 * width + kIndexTileSlots + 32;
}

}  // namespace lethe::kernels
