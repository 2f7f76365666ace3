#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/gate.h"

// The gradient of kernels/cpu/gate.h. Everything is contiguous.
namespace lethe::kernels {

/// Bits do not depend on the thread count: sums over tokens are cut by the shape only.
struct GateBackward {
  Parallel parallel;
  GateShape shape;
  const float* x;          // [T,D]
  const float* weight;     // [E,D]
  const float* scores;     // [T,E]
  const int32_t* indices;  // [T,k]
  const float* d_weights;  // [T,k] or nullptr
  const float* d_scores;   // [T,E] or nullptr
  float* d_x;              // [T,D] or nullptr
  float* d_weight;         // [E,D] or nullptr
  float* scratch;          // gate_backward_scratch(a) floats
};

/// Does not grow with T.
[[nodiscard]] int64_t gate_backward_scratch(const GateBackward& a);
void gate_backward(const GateBackward& a);

}  // namespace lethe::kernels
