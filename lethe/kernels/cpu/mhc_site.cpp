#include "lethe/kernels/cpu/mhc_site.h"

#include <algorithm>

#include "lethe/kernels/cpu/sinkhorn.h"

namespace lethe::kernels {
namespace {

// Every variant's tile has a number of rows that divides this.
constexpr int64_t kTileRows = 12, kFewestRows = 4;
// Partial sums of the gradient of fn: enough for many threads, but a bounded amount of memory.
constexpr int64_t kMostPartials = 32, kFewestPartials = 4, kPartialFloats = 4 << 20;

int64_t round_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

int64_t part(int64_t floats) {
  return round_up(floats, kMostLanes);
}

int64_t packed_floats(const MhcScratchShape& s) {
  const int64_t rows = round_up(s.rows, kTileRows);
  return s.streams * round_up(s.width, kMostLanes) * rows + rows / kFewestRows * kMhcPackGap;
}

}  // namespace

MhcScratchShape mhc_scratch_shape(const MhcSite& site, int64_t iterations) {
  return {.tokens = site.tokens,
          .streams = site.streams,
          .width = site.width,
          .rows = site.rows,
          .iterations = iterations,
          .threads = site.parallel.threads};
}

int64_t mhc_forward_thread_floats(const MhcScratchShape& s) {
  return kMhcMostTokens * kMostLanes * (round_up(s.rows, kTileRows) + 1) + 2 * s.rows * kMostLanes +
         part(kMhcMostTokens * s.streams);
}

int64_t mhc_backward_thread_floats(const MhcScratchShape& s) {
  const int64_t steps = 2 * s.iterations * (s.streams * s.streams + s.streams) * kMostLanes;
  return 3 * s.rows * kMostLanes + steps + 2 * part(kMhcMostTokens * s.streams) +
         kMhcMostTokens * round_up(s.rows, kTileRows) + kMhcMostTokens +
         kMhcMostTokens * kMhcPanelFloats;
}

int64_t mhc_slab_tokens(const MhcScratchShape& s) {
  const int64_t most =
      std::clamp(kPartialFloats / packed_floats(s), kFewestPartials, kMostPartials);
  return std::max(round_up((s.tokens + most - 1) / most, kMhcMostTokens), kMhcMostTokens);
}

int64_t mhc_partial_sums(const MhcScratchShape& s) {
  const int64_t slab = mhc_slab_tokens(s);
  return std::max<int64_t>((s.tokens + slab - 1) / slab, 1);
}

int64_t mhc_forward_scratch_floats(const MhcScratchShape& s) {
  return packed_floats(s) + s.threads * mhc_forward_thread_floats(s);
}

int64_t mhc_backward_scratch_floats(const MhcScratchShape& s) {
  const int64_t sums = packed_floats(s) + (s.rows + 3) * kMostLanes;
  return packed_floats(s) + mhc_partial_sums(s) * sums + s.threads * mhc_backward_thread_floats(s);
}

}  // namespace lethe::kernels
