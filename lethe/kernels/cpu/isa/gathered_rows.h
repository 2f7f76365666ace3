#pragma once

#include "lethe/kernels/cpu/isa/lanes.h"
#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/score_tile.h"
#include "lethe/kernels/cpu/isa/tile.h"

// Inside cpu/isa/ only: products of the heads of one query with rows of its own choice. Heads are
// the lanes, so rows are read where they lie: nothing is gathered or transposed but the query.
// The tiles are functions of their own: constants of a caller would take registers from them.
namespace lethe::kernels::LETHE_ISA {

/// Rows `ids` of base [*, width].
struct Rows {
  const float* base;
  int64_t width;
  const int32_t* ids;
  int64_t count;

  LETHE_INLINE const float* at(int64_t i) const { return base + ids[i] * width; }
};

/// One number per row and head: (row, head) at data[row * stride + head].
struct HeadProducts {
  float* data;
  int64_t stride, heads;
};

/// q [heads, dim] as panels [dim][kTileColumns] of heads; lanes behind the last head are zeros.
LETHE_INLINE void pack_heads(const float* q, int64_t heads, int64_t dim, float* panels) {
  for (int64_t head = 0; head < heads; head += kLanes) {
    const int64_t lane = head % kTileColumns;
    rows_to_lanes(q + head * dim,
                  least(kLanes, heads - head),
                  dim,
                  panels + (head - lane) * dim + lane,
                  kTileColumns);
  }
}

template <int Count, int Vecs>
__attribute__((noinline)) void product_tile(
    const Rows& rows, int64_t first, const float* panel, float* out, int64_t stride) {
  const float* row[Count];
  Vec sum[Count][Vecs] = {};
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i) row[i] = rows.at(first + i);
  const int64_t width = rows.width;
  for (int64_t k = 0; k < width; ++k) {
    Vec head[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) head[v] = load(panel + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) {
      const Vec element = broadcast(row[i][k]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sum[i][v] = fma(element, head[v], sum[i][v]);
    }
    panel += kTileColumns;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) store(out + i * stride + v * kLanes, sum[i][v]);
}

/// Fetches the rows of the next tile while this one is computed.
LETHE_INLINE void prefetch_rows(const Rows& rows, int64_t first) {
  constexpr int64_t kFloatsPerLine = 16;
  const int64_t end = least(rows.count, first + kTileRows);
  for (int64_t i = first; i < end; ++i)
    for (int64_t k = 0; k < rows.width; k += kFloatsPerLine) __builtin_prefetch(rows.at(i) + k);
}

/// out(row, head) = <row, q_head>, lanes behind the last head included.
LETHE_INLINE void head_products(const Rows& rows, const float* panels, const HeadProducts& out) {
  for (int64_t head = 0; head < out.heads; head += kTileColumns)
    for (int64_t first = 0; first < rows.count; first += kTileRows) {
      const float* panel = panels + head * rows.width;
      float* to = out.data + first * out.stride + head;
      if (head == 0) prefetch_rows(rows, first + kTileRows);
      with_count<kTileRows>(least(kTileRows, rows.count - first), [&](auto count) {
        if (out.heads - head > kLanes)
          product_tile<count.value, 2>(rows, first, panel, to, out.stride);
        else
          product_tile<count.value, 1>(rows, first, panel, to, out.stride);
      });
    }
}

/// One vector, or the first `some` lanes of it, of the heads from `head` on; 0 behind the last one.
LETHE_INLINE Vec heads_at(const HeadProducts& p, int64_t row, int64_t head) {
  const Vec v = load(p.data + row * p.stride + head);
  const int64_t rest = p.heads - head;
  return rest >= kLanes ? v : select(lane_numbers() < static_cast<int32_t>(rest), v, Vec{});
}

/// out[row] = sum over heads of weight * f(product). Whole vectors of `out` are written.
template <class F>
LETHE_INLINE void sums_over_heads(
    const HeadProducts& p, int64_t rows, const float* weights, float* out, F&& f) {
  for (int64_t first = 0; first < rows; first += kLanes) {
    Vec part[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      part[i] = Vec{};
      if (first + i < rows)
        for_vectors(p.heads, [&](int64_t head, int64_t some) {
          part[i] = fma(get(weights + head, some), f(heads_at(p, first + i, head)), part[i]);
        });
    }
    transpose_registers(part);
#pragma GCC unroll 4
    for (int half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) part[i] += part[i + half];
    store(out + first, part[0]);
  }
}

template <int Count, int Vecs>
__attribute__((noinline)) void weighted_tile(const Rows& rows,
                                             const float* weights,
                                             int64_t stride,
                                             int64_t column,
                                             int64_t some,
                                             float* out) {
  Vec sum[Count][Vecs];
  const bool whole = Vecs > 1 || some >= kLanes;
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      const float* from = out + i * rows.width + column + v * kLanes;
      sum[i][v] = whole ? load(from) : load_some(from, some);
    }
  const int64_t count = rows.count;
  for (int64_t j = 0; j < count; ++j) {
    const float* row = rows.at(j) + column;
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v)
      right[v] = in_register(whole ? load(row + v * kLanes) : load_some(row, some));
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) {
      const Vec weight = broadcast(weights[j * stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sum[i][v] = fma(weight, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      float* to = out + i * rows.width + column + v * kLanes;
      put(to, sum[i][v], whole ? static_cast<int64_t>(kLanes) : some);
    }
}

/// f(column, Count<vectors>, floats) for tiles of 3, 2 or 1 vectors that cover `width` columns; the
/// last one of 1 may be part of a vector. Never 1 where 2 + 2 will do: one vector waits for itself.
template <class F>
LETHE_INLINE void for_columns(int64_t width, F&& f) {
  for (int64_t column = 0; column < width;) {
    const int64_t vecs = (width - column) / kLanes;
    if (vecs == 3 || vecs > 4) {
      f(column, Count<3>{}, static_cast<int64_t>(kLanes));
      column += 3 * kLanes;
    } else if (vecs >= 2) {
      f(column, Count<2>{}, static_cast<int64_t>(kLanes));
      column += 2 * kLanes;
    } else {
      const int64_t some = least(kLanes, width - column);
      f(column, Count<1>{}, some);
      column += some;
    }
  }
}

/// out [heads, width] += sum over rows of weight(row, head) * row.
LETHE_INLINE void add_weighted_rows(const Rows& rows, const HeadProducts& weights, float* out) {
  for_columns(rows.width, [&](int64_t column, auto vecs, int64_t some) {
    for (int64_t head = 0; head < weights.heads; head += kGroupHeads)
      with_count<kGroupHeads>(least(kGroupHeads, weights.heads - head), [&](auto count) {
        weighted_tile<count.value, vecs.value>(
            rows, weights.data + head, weights.stride, column, some, out + head * rows.width);
      });
  });
}

template <int Count, int Vecs>
__attribute__((noinline)) void scatter_tile(const HeadProducts& weights,
                                            const float* q,
                                            const Rows& rows,
                                            int64_t first,
                                            int64_t some,
                                            float* out) {
  // The destinations are added last: the products need not wait for them.
  Vec sum[Count][Vecs] = {};
  const float* weight = weights.data + first * weights.stride;
  const int64_t stride = weights.stride, heads = weights.heads, width = rows.width;
  const int32_t* ids = rows.ids + first;
  const bool whole = Vecs > 1 || some >= kLanes;
  for (int i = 0; i < Count; ++i) __builtin_prefetch(out + ids[i] * width, 1);
  for (int64_t h = 0; h < heads; ++h) {
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) right[v] = whole ? load(q + v * kLanes) : load_some(q, some);
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) {
      const Vec left = broadcast(weight[i * stride + h]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sum[i][v] = fma(left, right[v], sum[i][v]);
    }
    q += width;
  }
  const int64_t floats = whole ? static_cast<int64_t>(kLanes) : some;
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      float* to = out + ids[i] * width + v * kLanes;
      put(to, get(to, floats) + sum[i][v], floats);
    }
}

/// out(ids[row], column) += sum over heads of weight(row, head) * q(head, column), for the columns
/// [begin, end) of q [heads, width] and of out; rows.base is not read. ids differ from one another.
LETHE_INLINE void scatter_weighted_heads(const HeadProducts& weights,
                                         const float* q,
                                         const Rows& rows,
                                         int64_t begin,
                                         int64_t end,
                                         float* out) {
  while (begin < end) {
    const bool wide = end - begin >= 2 * kLanes;
    const int64_t some = least(kLanes, end - begin);
    for (int64_t first = 0; first < rows.count; first += kTileRows)
      with_count<kTileRows>(least(kTileRows, rows.count - first), [&](auto count) {
        if (wide)
          scatter_tile<count.value, 2>(weights, q + begin, rows, first, some, out + begin);
        else
          scatter_tile<count.value, 1>(weights, q + begin, rows, first, some, out + begin);
      });
    begin += wide ? 2 * kLanes : some;
  }
}

}  // namespace lethe::kernels::LETHE_ISA
