#pragma once

#include <cstdint>
#include <vector>

namespace lethe::bench {

/// What this machine can do at best, measured now.
struct Peaks {
  int threads = 1;
  double fma_flops = 0;    // float32 operations per second, a multiply-add counted as two
  double triad_bytes = 0;  // bytes per second of a[i] = b[i] + s * c[i], 12 bytes an element
};

/// Independent multiply-adds in the registers of the kernels' instruction set, on `threads` threads
/// at once; the best of several repeats. About 0.3 s.
[[nodiscard]] double fma_peak(int threads);

/// STREAM's triad over three arrays of `total_bytes` together, each thread on its own part; plain
/// stores, so the memory also reads what is overwritten, which STREAM does not count. The best of
/// several repeats.
[[nodiscard]] double triad_peak(int threads, int64_t total_bytes);

/// Both, beyond this machine's caches.
[[nodiscard]] Peaks measure_peaks(int threads);

}  // namespace lethe::bench
