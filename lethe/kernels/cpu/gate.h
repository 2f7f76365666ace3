#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

// The router of a mixture of experts; formulas in lethe/ops/gate.h. Everything is contiguous.
// Bits depend on neither the thread count nor on the other tokens.
namespace lethe::kernels {

enum class ScoreFunction : uint8_t { SqrtSoftplus, Sigmoid, Softmax };

struct GateShape {
  int64_t tokens, width, experts, k;  // T, D, E, k with 1 <= k <= E
  ScoreFunction score;
  bool normalize;
  float scale;
  float sum_floor;  // added to the sum of chosen scores that divides them
};

struct GateForward {
  Parallel parallel;
  GateShape shape;
  const float* x;        // [T,D]
  const float* weight;   // [E,D]
  const float* bias;     // [E] or nullptr
  const int32_t* given;  // [T,k] ids that ascend in every row, or nullptr = the k best are taken
  float* weights;        // [T,k]
  int32_t* indices;      // [T,k] ascending
  float* scores;         // [T,E]
  float* scratch;        // gate_forward_scratch(a) floats
};

/// Does not grow with T.
[[nodiscard]] int64_t gate_forward_scratch(const GateForward& a);
void gate_forward(const GateForward& a);

}  // namespace lethe::kernels
