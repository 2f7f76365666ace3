#pragma once

#include "lethe/kernels/cpu/isa/vec.h"

// Inside cpu/isa/ only: matrices turned by register transposes.
namespace lethe::kernels::LETHE_ISA {

/// The lane numbers 0 .. kLanes - 1 as a parameter pack.
template <int... Lane>
struct Lanes {};

template <int Count, int... Lane>
struct MakeLanes : MakeLanes<Count - 1, Count - 1, Lane...> {};

template <int... Lane>
struct MakeLanes<0, Lane...> {
  using type = Lanes<Lane...>;
};

using AllLanes = MakeLanes<kLanes>::type;

/// Exchanges the off-diagonal blocks of Step x Step elements of two rows that are Step apart.
template <int Step, int... Lane>
LETHE_INLINE void exchange(Vec& upper, Vec& lower, Lanes<Lane...>) {
  const Vec a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, ((Lane & Step) ? kLanes + Lane - Step : Lane)...);
  lower = __builtin_shufflevector(a, b, ((Lane & Step) ? kLanes + Lane : Lane + Step)...);
}

/// A kLanes x kLanes matrix, one row per register, becomes its transpose.
template <int Step = kLanes / 2>
LETHE_INLINE void transpose_registers(Vec (&row)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & Step) == 0) exchange<Step>(row[i], row[i | Step], AllLanes{});
  if constexpr (Step > 1) transpose_registers<Step / 2>(row);
}

/// Element (row, column) of a matrix at data[row * stride + column].
template <class Float>
struct Matrix {
  Float* data;
  int64_t stride;

  LETHE_INLINE Float* at(int64_t row, int64_t column) const { return data + row * stride + column; }
};

/// to(column, row) = or += factor * from(row, column), rows x columns of `from`.
template <bool Add>
LETHE_INLINE void transpose(
    Matrix<const float> from, int64_t rows, int64_t columns, Matrix<float> to, float factor) {
  const int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int64_t row = 0; row < whole_rows; row += kLanes)
    for (int64_t column = 0; column < whole_columns; column += kLanes) {
      Vec block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = load(from.at(row + i, column));
      transpose_registers(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        float* place = to.at(column + i, row);
        store(place, Add ? load(place) + block[i] * factor : block[i] * factor);
      }
    }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column) {
      const float value = *from.at(row, column) * factor;
      float* place = to.at(column, row);
      *place = Add ? *place + value : value;
    }
}

}  // namespace lethe::kernels::LETHE_ISA
