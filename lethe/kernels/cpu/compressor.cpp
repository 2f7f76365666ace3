#include "lethe/kernels/cpu/compressor.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

int64_t compressor_scratch_floats(int64_t width, int threads) {
  // Largest gate, sum, pooled value, its gradient; a line more each, lest they share a cache set.
  constexpr int64_t kRows = 4, kUnit = 16;
  return threads * kRows * ((width + kUnit - 1) / kUnit + 1) * kUnit;
}

int64_t compressor_partials(int64_t slots) {
  constexpr int64_t kMost = 32, kSlotsEach = 4;
  const int64_t wanted = (slots + kSlotsEach - 1) / kSlotsEach;
  return wanted < kMost ? wanted : kMost;
}

int64_t compressor_partial_floats(const CompressorInputs& in) {
  const int64_t ape = in.ratio * in.width * (in.overlap ? 2 : 1);
  return compressor_partials(in.slots) * (in.width + ape);
}

LETHE_DISPATCH_ISA(void, compressor_forward, CompressorForward)
LETHE_DISPATCH_ISA(void, compressor_backward, CompressorBackward)

}  // namespace lethe::kernels
