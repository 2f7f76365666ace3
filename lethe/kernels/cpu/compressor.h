#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"
#include "lethe/kernels/cpu/rotary.h"

namespace lethe::kernels {

/// What pools the windows of a packed row into slots; see lethe/ops/compressor.h.
struct CompressorInputs {
  int64_t documents, slots, ratio, width;  // width: channels of a slot, d
  bool overlap;                            // a slot pools the window before its own too
  const int32_t* cu_seqlens;               // [documents + 1] starts of the documents' tokens
  const int32_t* cu_slots;                 // [documents + 1] starts of the documents' slots
  const float* kv;                         // [tokens, coff*d] contiguous, coff = 2 with overlap
  const float* gate;                       // [tokens, coff*d]
  const float* ape;                        // [ratio, coff*d]
  const float* norm_weight;                // [d]
  float eps;
  Rotary rotary;  // positions: one per slot
};

/// scratch: compressor_scratch_floats(width, threads).
struct CompressorForward {
  Parallel parallel;
  CompressorInputs in;
  float* slots;  // [slots, d]
  float* scratch;
};

void compressor_forward(const CompressorForward& a);

/// Writes every element of the four gradients once. partials: compressor_partial_floats(...).
struct CompressorBackward {
  Parallel parallel;
  CompressorInputs in;
  const float* d_slots;  // [slots, d]
  float* d_kv;           // like kv
  float* d_gate;         // like gate
  float* d_ape;          // like ape
  float* d_norm_weight;  // [d]
  float* partials;
  float* scratch;
};

void compressor_backward(const CompressorBackward& a);

[[nodiscard]] int64_t compressor_scratch_floats(int64_t width, int threads);

/// Slots are cut into this many partial sums of d_ape and d_norm_weight, whatever the thread count:
/// at most 32, and few enough that each serves several slots.
[[nodiscard]] int64_t compressor_partials(int64_t slots);

/// All partial sums.
[[nodiscard]] int64_t compressor_partial_floats(const CompressorInputs& in);

}  // namespace lethe::kernels
