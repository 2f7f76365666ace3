#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

// The experts: two products with a clamped SwiGLU between them, for the routed experts
// (lethe/ops/experts.h) and, as one expert that every token passes, for the shared one
// (lethe/ops/swiglu_mlp.h). Source: spec 1 9.2.
namespace lethe::kernels {

/// Rows that one task takes through an expert.
inline constexpr int64_t kExpertTile = 128;

/// Which rows each expert gets. Row r of [0, begins[experts]) serves route order[r] = token *
/// choices + choice; the rows of expert e are begins[e] .. begins[e+1], cut into the tiles
/// tile_begins[e] .. tile_begins[e+1] of kExpertTile rows.
struct ExpertRoutes {
  int64_t experts, choices;
  const int32_t* order;  // nullptr: one expert, one choice, row r is token r
  const int64_t* begins;
  const int64_t* tile_begins;
};

/// A stable counting sort of the routes by expert, in one pass over indices for the counts and one
/// for the order: within an expert, rows keep the order of tokens and choices.
/// indices [routes] expert ids in [0, experts); order [routes], begins and tile_begins
/// [experts + 1] are written; routes < 2^31.
struct SortRoutes {
  int64_t routes, experts;
  const int32_t* indices;
  int32_t* order;
  int64_t* begins;
  int64_t* tile_begins;
};

void sort_routes(const SortRoutes& a);

/// The weights of all experts, row-major one after the other, as float32 or as the bits of
/// bfloat16: exactly one pointer is set. bfloat16 is widened block by block as it is read.
struct ExpertMatrices {
  const float* wide;
  const uint16_t* narrow;
};

struct ExpertSizes {
  int64_t width, inner;  // D, I
};

/// y[token] += sum over its rows, in ascending expert, of
///   (silu(min(gate, limit)) * clamp(up, -limit, limit) * weight) fc2[e]^T,
///   [gate; up] = x[token] fc1[e]^T
/// x, y [T,D] contiguous, y zeroed by the caller; weights [T,choices] or nullptr for 1; fc1
/// [experts,2I,D], fc2 [experts,D,I]; limit 0: no clamp. scratch: as many floats as
/// experts_forward_scratch says. projected [begins[experts],2I] receives [gate; up] of every row,
/// which backward reads; nullptr: not needed. Bits depend neither on threads nor on scratch sizes.
struct ExpertsForward {
  Parallel parallel;
  ExpertRoutes routes;
  ExpertSizes sizes;
  float limit;
  const float* x;
  const float* weights;
  ExpertMatrices fc1, fc2;
  float* y;
  float* projected;
  float* scratch;
};

void experts_forward(const ExpertsForward& a);

/// The gradients of experts_forward, from its operands and `projected`; nullptr: not needed.
/// d_y, d_x [T,D], d_x zeroed by the caller; d_weights [T,choices], d_fc1 and d_fc2 like fc1 and
/// fc2 in float32, every element written: zeros for an expert without rows. Parts of a token are
/// added in ascending expert, sums over tokens run in ascending rows.
struct ExpertsBackward {
  Parallel parallel;
  ExpertRoutes routes;
  ExpertSizes sizes;
  float limit;
  const float* x;
  const float* weights;
  const float* projected;
  ExpertMatrices fc1, fc2;
  const float* d_y;
  float *d_x, *d_weights, *d_fc1, *d_fc2;
  float* scratch;
};

void experts_backward(const ExpertsBackward& a);

/// Floats of scratch for `threads` threads: a few tiles each, whatever the number of tokens.
struct ExpertsScratch {
  ExpertSizes sizes;
  int threads;
};

int64_t experts_forward_scratch(const ExpertsScratch& a);
int64_t experts_backward_scratch(const ExpertsScratch& a);

}  // namespace lethe::kernels
