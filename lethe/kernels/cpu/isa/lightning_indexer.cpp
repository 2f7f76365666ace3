#include "lethe/kernels/cpu/lightning_indexer.h"

#include "lethe/kernels/cpu/isa/candidates.h"
#include "lethe/kernels/cpu/isa/query_runs.h"
#include "lethe/kernels/cpu/isa/score_tile.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

static_assert(kIndexTileSlots % kPanelKeys == 0);

constexpr int64_t kMostQueries = 32;  // of index_block_queries
constexpr float kInvisible = -__builtin_inff();

/// A thread's share of the scratch.
struct Tiles {
  float* keys;    // panels of kIndexTileSlots keys
  float* scores;  // [queries of a block, kIndexTileSlots]
  int32_t* candidates;
};

template <class Arguments>
Tiles tiles_of(const Arguments& a, int64_t width, int thread) {
  float* own = a.scratch + thread * lightning_indexer_scratch_floats(a.in, width, /*threads=*/1);
  float* scores = own + a.in.dim * kIndexTileSlots;
  return {own,
          scores,
          reinterpret_cast<int32_t*>(scores + index_block_queries(a.in) * kIndexTileSlots)};
}

/// Scores of the run's queries from `first` on, a tile of slots at a time: consume(i, slot, scores,
/// count) gets those that query i sees of the slots from `slot` on, slots ascending.
template <class F>
LETHE_INLINE void score_run(
    const IndexerArrays& in, const QueryRun& run, int64_t first, const Tiles& tiles, F&& consume) {
  const int64_t visible = first < run.size ? run.visible(run.size - 1) : 0;
  for (int64_t slot = 0; slot < visible; slot += kIndexTileSlots) {
    const int64_t count = least(kIndexTileSlots, visible - slot);
    pack_keys(in.k + (run.slot_begin + slot) * in.dim, count, in.dim, tiles.keys);
    for (int64_t panel = 0; panel < count; panel += kPanelKeys)
      for (int64_t i = first; i < run.size; ++i)
        if (run.visible(i) > slot + panel)
          score_panel(in,
                      run.begin + i,
                      tiles.keys + panel * in.dim,
                      tiles.scores + i * kIndexTileSlots + panel);
    for (int64_t i = first; i < run.size; ++i) {
      const int64_t seen = least(count, run.visible(i) - slot);
      if (seen > 0) consume(i, slot, tiles.scores + i * kIndexTileSlots, seen);
    }
  }
}

/// f(run, thread) for the runs of all blocks of queries. The last blocks see most: they go first.
template <class Arguments, class F>
void for_blocks(const Arguments& a, F&& f) {
  const int64_t tokens = tokens_of(a.rows), size = index_block_queries(a.in);
  const int64_t blocks = (tokens + size - 1) / size;
  a.parallel(blocks, [&](int64_t task, int thread) {
    const int64_t begin = (blocks - 1 - task) * size;
    for_runs(
        a.rows, begin, least(tokens, begin + size), [&](const QueryRun& run) { f(run, thread); });
  });
}

void take_all(const LightningIndexer& a, const QueryRun& run, int64_t i) {
  int32_t* indices = a.indices + (run.begin + i) * a.width;
  const int64_t visible = run.visible(i);
  for (int64_t j = 0; j < a.width; ++j)
    indices[j] = j < visible ? static_cast<int32_t>(run.slot_begin + j) : -1;
}

void write(const LightningIndexer& a, const QueryRun& run, int64_t i, const Candidates& best) {
  const int64_t at = (run.begin + i) * a.width;
  for (int64_t j = 0; j < a.width; ++j)
    a.indices[at + j] = j < best.count ? static_cast<int32_t>(run.slot_begin) + best.slot[j] : -1;
  if (a.values == nullptr) return;
  for (int64_t j = 0; j < a.width; ++j) {
    const int32_t key = j < best.count ? best.score[j] : 0, b = key ^ ((key >> 31) & 0x7fffffff);
    std::memcpy(a.values + at + j, &b, sizeof b);
    if (j >= best.count) a.values[at + j] = kInvisible;
  }
}

void select_run(const LightningIndexer& a, const QueryRun& run, const Tiles& tiles) {
  const int64_t capacity = candidate_capacity(a.width);
  int64_t first = 0;
  if (a.values == nullptr)
    for (; first < run.size && run.visible(first) <= a.width; ++first) take_all(a, run, first);
  Candidates candidates[kMostQueries];
  for (int64_t i = first; i < run.size; ++i) {
    int32_t* own = tiles.candidates + i * 2 * capacity;
    candidates[i] = {own, own + capacity, 0, kNoFloor};
  }
  score_run(
      a.in, run, first, tiles, [&](int64_t i, int64_t slot, const float* scores, int64_t count) {
        Candidates& c = candidates[i];
        if (c.count + kIndexTileSlots + kLanes > capacity)
          shrink(c, a.width, a.width + a.width / 4);
        append(c, scores, count, slot);
      });
  for (int64_t i = first; i < run.size; ++i) {
    shrink(candidates[i], a.width, a.width);
    write(a, run, i, candidates[i]);
  }
}

}  // namespace

void lightning_indexer(const LightningIndexer& a) {
  for_blocks(a, [&](const QueryRun& run, int thread) {
    select_run(a, run, tiles_of(a, a.width, thread));
  });
}

void indexer_scores(const IndexerScores& a) {
  for_blocks(a, [&](const QueryRun& run, int thread) {
    for (int64_t i = 0; i < run.size; ++i)
      for (int64_t j = run.visible(i); j < a.width; ++j)
        a.scores[(run.begin + i) * a.width + j] = kInvisible;
    score_run(a.in,
              run,
              0,
              tiles_of(a, 0, thread),
              [&](int64_t i, int64_t slot, const float* scores, int64_t count) {
                float* row = a.scores + (run.begin + i) * a.width + slot;
                for_vectors(count, [&](int64_t j, int64_t some) {
                  put(row + j, get(scores + j, some), some);
                });
              });
  });
}

}  // namespace lethe::kernels::LETHE_ISA
