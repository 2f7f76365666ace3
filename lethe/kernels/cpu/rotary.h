#pragma once

#include <cstdint>

// What the kernels that rotate share: see lethe/ops/rope.h for the definition.
namespace lethe::kernels {

/// Rotation of the last 2 * pairs channels of every row by its token's position. pairs may be 0:
/// then nothing else is read.
struct Rotary {
  const int64_t* positions;  // one per token
  const float* inv_freq;     // [pairs]
  int64_t pairs;
  float* tables;  // scratch of rotary_scratch_floats(pairs, threads)
};

/// Floats of one thread's cosines, and as many for its sines: whole vectors of any instruction set.
[[nodiscard]] int64_t rotary_table_floats(int64_t pairs);

[[nodiscard]] int64_t rotary_scratch_floats(int64_t pairs, int threads);

}  // namespace lethe::kernels
