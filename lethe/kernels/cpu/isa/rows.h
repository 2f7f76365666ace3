#pragma once

#include "lethe/kernels/cpu/isa/vec.h"
#include "lethe/kernels/cpu/parallel.h"

// Inside cpu/isa/ only: loops over a row of floats whose length need not be whole vectors.
namespace lethe::kernels::LETHE_ISA {

/// f(i, first) for each vector of the row, then, for the rest, f(i, count) with count < kLanes.
/// f reads and writes through get/put below with the same count.
template <class F>
LETHE_INLINE void for_vectors(int64_t width, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) f(i, static_cast<int64_t>(kLanes));
  if (i < width) f(i, width - i);
}

LETHE_INLINE Vec get(const float* p, int64_t count) {
  return count == kLanes ? load(p) : load_some(p, count);
}

LETHE_INLINE void put(float* p, Vec v, int64_t count) {
  if (count == kLanes)
    store(p, v);
  else
    store_some(p, v, count);
}

/// A sum over the row: f(i, count, part) returns part plus the terms of one vector, through get
/// with its count. Four parts, so that the loop does not wait for each addition; their order is
/// fixed by the width.
template <class F>
LETHE_INLINE float sum_vectors(int64_t width, F&& f) {
  Vec part[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) part[j] = f(i + j * kLanes, static_cast<int64_t>(kLanes), part[j]);
  for (; i + kLanes <= width; i += kLanes) part[0] = f(i, static_cast<int64_t>(kLanes), part[0]);
  if (i < width) part[1] = f(i, width - i, part[1]);
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

/// Tasks of about this many floats: large enough that claiming one costs nothing.
inline constexpr int64_t kFloatsPerTask = 1 << 14;

LETHE_INLINE int64_t rows_per_task(int64_t width) {
  const int64_t rows = kFloatsPerTask / (width > 0 ? width : 1);
  return rows > 1 ? rows : 1;
}

/// f(row, thread) for all rows, several rows to a task.
template <class F>
LETHE_INLINE void for_rows(const Parallel& parallel, int64_t rows, int64_t width, F&& f) {
  const int64_t step = rows_per_task(width);
  parallel((rows + step - 1) / step, [&](int64_t task, int thread) {
    const int64_t end = (task + 1) * step < rows ? (task + 1) * step : rows;
    for (int64_t row = task * step; row < end; ++row) f(row, thread);
  });
}

}  // namespace lethe::kernels::LETHE_ISA
