#pragma once

#include "lethe/kernels/cpu/isa/rows.h"

// Inside cpu/isa/ only: inner products of one row with several.
namespace lethe::kernels::LETHE_ISA {

/// A count known to the compiler, as an argument.
template <int N>
struct Count {
  static constexpr int value = N;
};

/// f(Count<count>{}) for 1 <= count <= 4.
template <class F>
LETHE_INLINE void with_count(int64_t count, F&& f) {
  if (count >= 4) return f(Count<4>{});
  if (count == 3) return f(Count<3>{});
  if (count == 2) return f(Count<2>{});
  f(Count<1>{});
}

/// The right-hand rows: row j at b + j * row_stride, `length` floats each.
struct Dots {
  int64_t rows, row_stride, length;
  bool accumulate;  // add to the result instead of replacing it
  const float* b;
};

/// result[j] (+)= <a, b[j]>, four rows at a time: one read of a serves all four.
LETHE_INLINE void row_dots(const Dots& d, const float* a, float* result) {
  for (int64_t first = 0; first < d.rows; first += 4)
    with_count(
        d.rows - first, [&](auto rows) __attribute__((always_inline)) {
          constexpr int kRows = decltype(rows)::value;
          const float* b = d.b + first * d.row_stride;
          Vec total[kRows] = {};
          for_vectors(
              d.length, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
                const Vec left = get(a + i, count);
#pragma GCC unroll 4
                for (int j = 0; j < kRows; ++j)
                  total[j] = fma(left, get(b + j * d.row_stride + i, count), total[j]);
              });
          for (int j = 0; j < kRows; ++j)
            result[first + j] = sum(total[j]) + (d.accumulate ? result[first + j] : 0.0F);
        });
}

}  // namespace lethe::kernels::LETHE_ISA
