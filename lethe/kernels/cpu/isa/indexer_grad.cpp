#include "lethe/kernels/cpu/indexer_grad.h"

#include "lethe/kernels/cpu/isa/indexer_steps.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

struct GivenGradients {
  const IndexerBackward& a;

  void prepare(int64_t, int64_t, int) {}

  void finish(int64_t, int64_t) {}

  void d_scores(const QueryTile& t, float* out) {
    const float* row = a.d_scores + t.query * a.g.width;
    for (int64_t i = 0; i < t.keys.count; ++i) out[i] = row[t.columns[i]];
  }
};

}  // namespace

void indexer_backward(const IndexerBackward& a) {
  GivenGradients given{a};
  for_steps(a.g, given);
}

void indexer_values(const IndexerValues& a) {
  const IndexerGradients& g = a.g;
  const StepScratch s(g);
  const int64_t tokens = tokens_of(g.rows);
  // A thread works in the place of the query of its number.
  for_rows(g.parallel, tokens, g.width * g.in.heads, [&](int64_t query, int thread) {
    float *values = a.values + query * g.width, *scores = s.d_scores + thread * s.keys;
    for (int64_t j = 0; j < g.width; ++j) values[j] = -__builtin_inff();
    const int64_t tiles = tiles_of_query(g, run_of(g.rows, query));
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const QueryTile t = open_tile(g, s, query, thread, tile, thread);
      tile_scores(g, t, scores);
      for (int64_t i = 0; i < t.keys.count; ++i) values[t.columns[i]] = scores[i];
    }
  });
}

}  // namespace lethe::kernels::LETHE_ISA
