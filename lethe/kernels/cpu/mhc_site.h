#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

namespace lethe::kernels {

/// What mhc_pre and mhc_head have in common (model spec 3.1, 3.3): the streams x [T, n, D] and the
/// parameters of their projection. Rows of fn are the columns of mix.
struct MhcSite {
  Parallel parallel;
  int64_t tokens, streams, width;       // T, n, D; D >= 1, n >= 1
  int64_t rows, scales;                 // (2 + n) n and 3, or n and 1
  int64_t token_stride, stream_stride;  // of x, in floats, 0 allowed; its last dimension is dense
  const float* x;
  const float* fn;     // [rows, nD]
  const float* base;   // [rows]
  const float* scale;  // [scales]
  float norm_eps, hc_eps;
  float* scratch;  // mhc_forward_scratch_floats or mhc_backward_scratch_floats
};

/// The sizes that decide how much scratch a site needs.
struct MhcScratchShape {
  int64_t tokens, streams, width, rows;
  int64_t iterations;  // of Sinkhorn; 0 for the head
  int64_t threads;
};

/// The repacked fn, and a block of tokens for each thread; independent of T.
[[nodiscard]] int64_t mhc_forward_scratch_floats(const MhcScratchShape& s);

/// The same and the partial sums of the parameters' gradients: their number depends on T up to a
/// bound, and never on the threads.
[[nodiscard]] int64_t mhc_backward_scratch_floats(const MhcScratchShape& s);

// For the kernels themselves: how they divide that scratch, whatever the instruction set.

/// No block of tokens is larger, and every size of block divides it.
inline constexpr int64_t kMhcMostTokens = 48;

/// About this many floats of a token are multiplied while they lie in the first cache, for at most
/// kMhcMostShared tokens; also the length after which sums are put aside, which keeps them
/// accurate.
inline constexpr int64_t kMhcPieceFloats = 512;
inline constexpr int64_t kMhcMostShared = 8;

/// Floats between groups of rows of the repacked fn, so that they fall into different cache sets.
inline constexpr int64_t kMhcPackGap = 1024;

/// Columns of the streams that the backward pass copies at a time.
inline constexpr int64_t kMhcPanelFloats = 128;

[[nodiscard]] MhcScratchShape mhc_scratch_shape(const MhcSite& site, int64_t iterations);

/// Floats of the block of one thread.
[[nodiscard]] int64_t mhc_forward_thread_floats(const MhcScratchShape& s);
[[nodiscard]] int64_t mhc_backward_thread_floats(const MhcScratchShape& s);

/// Sums over tokens of the parameters' gradients run over this many consecutive tokens each.
[[nodiscard]] int64_t mhc_slab_tokens(const MhcScratchShape& s);
[[nodiscard]] int64_t mhc_partial_sums(const MhcScratchShape& s);

}  // namespace lethe::kernels
