#pragma once

#include "lethe/kernels/cpu/isa/vec.h"

// Inside cpu/isa/ only: one side of a matrix shared out to tasks.
namespace lethe::kernels::LETHE_ISA {

/// Columns (or rows) that one task owns: about, and at most.
inline constexpr int64_t kSlice = 96;
inline constexpr int64_t kMostSlice = 2 * kSlice;

/// Columns shared out to tasks: whole units, about kSlice wide, and as many tasks as
/// keep all threads busy. unit <= kSlice.
struct Slices {
  int64_t width, unit, units, count;

  Slices(int64_t columns, int64_t columns_per_unit, int threads)
      : width(columns), unit(columns_per_unit), units((columns + unit - 1) / unit) {
    count = round_up((columns + kSlice - 1) / kSlice, threads);
    if (count > units) count = units;
  }

  [[nodiscard]] int64_t begin(int64_t i) const {
    const int64_t at = i * units / count * unit;
    return at < width ? at : width;
  }
};

}  // namespace lethe::kernels::LETHE_ISA
