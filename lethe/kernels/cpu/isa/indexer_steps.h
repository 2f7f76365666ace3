#pragma once

#include "lethe/kernels/cpu/indexer_grad.h"
#include "lethe/kernels/cpu/isa/gathered_rows.h"
#include "lethe/kernels/cpu/isa/query_runs.h"

// Inside cpu/isa/ only: the gradients of the indexer's inputs, whatever gives d_scores. Tokens go
// in steps of some queries. First every query on its own: products with its keys, d_scores, d_q,
// d_w. Then, behind a barrier, every slice of columns on its own: what all queries of the step add
// to d_k, in the order of the tokens.
namespace lethe::kernels::LETHE_ISA {

/// One query and the keys of one tile.
struct QueryTile {
  QueryRun run;            // of this query
  int64_t query, in_step;  // token; its place in the step
  int64_t tile, tiles;     // which of how many tiles of keys
  Rows keys;               // rows of k
  const int32_t* columns;  // of every key, in the width columns of the arguments
  HeadProducts products;   // <key, q_h>
  int thread;
};

/// The scratch of one call.
struct StepScratch {
  int64_t queries, keys, stride;
  int32_t* counts;  // [queries]
  int32_t* ids;     // [queries, keys]
  int32_t* columns;
  float* products;  // [queries, keys, stride]
  float* panels;    // per thread: a query's heads as panels
  float* d_scores;  // per thread: [keys]
  int64_t panel_floats;

  explicit StepScratch(const IndexerGradients& g)
      : queries(queries_per_step(g)),
        keys(head_stride(keys_per_tile(g))),
        stride(head_stride(g.in.heads)),
        counts(reinterpret_cast<int32_t*>(g.scratch)),
        ids(counts + 16 * queries),
        columns(ids + queries * keys),
        products(reinterpret_cast<float*>(columns + queries * keys)),
        panels(products + queries * keys * stride),
        d_scores(panels + g.parallel.threads * head_panel_floats(g.in.heads, g.in.dim)),
        panel_floats(head_panel_floats(g.in.heads, g.in.dim)) {}
};

LETHE_INLINE int64_t tiles_of_query(const IndexerGradients& g, const QueryRun& run) {
  if (g.indices != nullptr) return 1;
  return (run.visible(0) + kDenseKeys - 1) / kDenseKeys;
}

/// Fills ids and columns of the tile; returns how many.
inline int64_t list_keys(
    const IndexerGradients& g, const QueryRun& run, int64_t tile, int32_t* ids, int32_t* columns) {
  int64_t count = 0;
  if (g.indices != nullptr) {
    const int32_t* indices = g.indices + run.begin * g.width;
    for (int64_t j = 0; j < g.width; ++j) {
      ids[count] = indices[j];
      columns[count] = static_cast<int32_t>(j);
      count += indices[j] >= 0;
    }
    return count;
  }
  const int64_t end = least(run.visible(0), (tile + 1) * kDenseKeys);
  for (int64_t slot = tile * kDenseKeys; slot < end; ++slot, ++count) {
    ids[count] = static_cast<int32_t>(run.slot_begin + slot);
    columns[count] = static_cast<int32_t>(slot);
  }
  return count;
}

/// The tile with its products.
LETHE_INLINE QueryTile open_tile(const IndexerGradients& g,
                                 const StepScratch& s,
                                 int64_t query,
                                 int64_t in_step,
                                 int64_t tile,
                                 int thread) {
  const QueryRun run = run_of(g.rows, query);
  int32_t *ids = s.ids + in_step * s.keys, *columns = s.columns + in_step * s.keys;
  const int64_t count = list_keys(g, run, tile, ids, columns);
  s.counts[in_step] = static_cast<int32_t>(count);
  float* panels = s.panels + thread * s.panel_floats;
  const QueryTile t{run,
                    query,
                    in_step,
                    tile,
                    tiles_of_query(g, run),
                    {g.in.k, g.in.dim, ids, count},
                    columns,
                    {s.products + in_step * s.keys * s.stride, s.stride, g.in.heads},
                    thread};
  pack_heads(g.in.q + query * g.in.heads * g.in.dim, g.in.heads, g.in.dim, panels);
  head_products(t.keys, panels, t.products);
  return t;
}

/// scores[i] of the tile's keys; whole vectors are written.
LETHE_INLINE void tile_scores(const IndexerGradients& g, const QueryTile& t, float* scores) {
  sums_over_heads(t.products, t.keys.count, g.in.w + t.query * g.in.heads, scores, [](Vec dot) {
    return max(Vec{}, dot);  // in this order NaN stays NaN
  });
}

/// Products S become dI w [S>0]; d_w += sum dI relu(S).
LETHE_INLINE void products_to_weights(const IndexerGradients& g,
                                      const QueryTile& t,
                                      const float* d_scores) {
  const float* w = g.in.w + t.query * g.in.heads;
  float* d_w = g.d_w + t.query * g.in.heads;
  for_vectors(g.in.heads, [&](int64_t head, int64_t some) {
    const Vec weight = get(w + head, some);
    Vec sum = get(d_w + head, some);
    for (int64_t i = 0; i < t.keys.count; ++i) {
      float* place = t.products.data + i * t.products.stride + head;
      const Vec dot = load(place), d = broadcast(d_scores[i]);
      sum = fma(d, max(Vec{}, dot), sum);
      store(place, select(dot <= 0.0F, Vec{}, d * weight));
    }
    put(d_w + head, sum, some);
  });
}

LETHE_INLINE void fill_zero(float* p, int64_t count) {
  for_vectors(count, [&](int64_t i, int64_t some) { put(p + i, Vec{}, some); });
}

/// The part of one query: d_scores(tile, out) gives dI of the tile's keys.
template <class Client>
LETHE_INLINE void query_gradients(const IndexerGradients& g,
                                  const StepScratch& s,
                                  const QueryTile& t,
                                  Client& client) {
  const int64_t size = g.in.heads * g.in.dim;
  if (t.tile == 0) {
    fill_zero(g.d_q + t.query * size, size);
    fill_zero(g.d_w + t.query * g.in.heads, g.in.heads);
  }
  if (t.keys.count == 0) return;
  float* d_scores = s.d_scores + t.thread * s.keys;
  client.d_scores(t, d_scores);
  products_to_weights(g, t, d_scores);
  add_weighted_rows(t.keys, t.products, g.d_q + t.query * size);
}

/// What the queries [begin, begin + count) add to a slice of d_k's columns.
LETHE_INLINE void key_gradients(
    const IndexerGradients& g, const StepScratch& s, int64_t begin, int64_t count, int64_t slice) {
  const int64_t first = slice * kTileColumns, end = least(g.in.dim, first + kTileColumns);
  for (int64_t i = 0; i < count; ++i)
    scatter_weighted_heads({s.products + i * s.keys * s.stride, s.stride, g.in.heads},
                           g.in.q + (begin + i) * g.in.heads * g.in.dim,
                           {nullptr, g.in.dim, s.ids + i * s.keys, s.counts[i]},
                           first,
                           end,
                           g.d_k);
}

/// All gradients. `client` has
///   prepare(query, in_step, thread)  before the query's first tile
///   d_scores(tile, out)              dI of the tile's keys, at least one, from its products
///   finish(begin, count)             after a step, on the calling thread
template <class Client>
void for_steps(const IndexerGradients& g, Client& client) {
  const StepScratch s(g);
  const int64_t tokens = tokens_of(g.rows), dim = g.in.dim;
  fill_zero(g.d_k, int64_t{g.rows.cu_slots[g.rows.documents]} * dim);
  for (int64_t begin = 0; begin < tokens; begin += s.queries) {
    const int64_t count = least(s.queries, tokens - begin);
    int64_t tiles = 1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = tiles_of_query(g, run_of(g.rows, begin + i));
      tiles = own > tiles ? own : tiles;
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      g.parallel(count, [&](int64_t i, int thread) {
        if (tile == 0) client.prepare(begin + i, i, thread);
        query_gradients(g, s, open_tile(g, s, begin + i, i, tile, thread), client);
      });
      g.parallel((dim + kTileColumns - 1) / kTileColumns,
                 [&](int64_t slice, int) { key_gradients(g, s, begin, count, slice); });
    }
    client.finish(begin, count);
  }
}

}  // namespace lethe::kernels::LETHE_ISA
