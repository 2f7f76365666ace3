#include "bench/support/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "bench/support/machine.h"

#include "lethe/kernels/cpu/isa.h"

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRounds = 1 << 20;

// A multiply-add of its own per accumulator and round: enough of them to hide its latency on two
// ports, and few enough for the registers. Returns operations; `sink` keeps the sums alive.
#define LETHE_FMA_LOOP(name, attributes, Vec, lanes, accumulators, fill, multiply_add) \
  attributes double name(float* sink) {                                                \
    Vec sum[accumulators];                                                             \
    for (int i = 0; i < accumulators; ++i) sum[i] = fill(static_cast<float>(i));       \
    const Vec a = fill(0.999F), b = fill(1e-3F);                                       \
    for (int64_t round = 0; round < kRounds; ++round) {                                \
      _Pragma("GCC unroll 24") for (int i = 0; i < accumulators; ++i) sum[i] =         \
          multiply_add(sum[i], a, b);                                                  \
    }                                                                                  \
    Vec total = sum[0];                                                                \
    for (int i = 1; i < accumulators; ++i) total += sum[i];                            \
    for (int i = 0; i < lanes; ++i) *sink += total[i];                                 \
    return 2.0 * accumulators * lanes * static_cast<double>(kRounds);                  \
  }

typedef float Vec4 __attribute__((vector_size(16)));
#define LETHE_FILL4(x) ((x)-Vec4{})
#define LETHE_FMA4(c, a, b) ((c) * (a) + (b))
LETHE_FMA_LOOP(fma_portable, , Vec4, 4, 12, LETHE_FILL4, LETHE_FMA4)

#ifdef __x86_64__
LETHE_FMA_LOOP(
    fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, 12, _mm256_set1_ps, _mm256_fmadd_ps)
LETHE_FMA_LOOP(
    fma_avx512, __attribute__((target("avx512f"))), __m512, 16, 24, _mm512_set1_ps, _mm512_fmadd_ps)
#endif

double fma_round(float* sink) {
#ifdef __x86_64__
  if (kernels::active_isa() == kernels::Isa::Avx512) return fma_avx512(sink);
  if (kernels::active_isa() == kernels::Isa::Avx2) return fma_avx2(sink);
#endif
  return fma_portable(sink);
}

// Seconds from the moment all threads are released to the end of the last; the best of `repeats`.
double best_seconds(int threads, int repeats, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> pool;
    for (int thread = 0; thread < threads; ++thread)
      pool.emplace_back([&, thread] {
        ++ready;
        while (!go) std::this_thread::yield();
        work(thread);
      });
    while (ready < threads) std::this_thread::yield();
    const auto start = Clock::now();
    go = true;
    for (std::thread& worker : pool) worker.join();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

double fma_peak(int threads) {
  std::vector<double> operations(static_cast<size_t>(threads));
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  constexpr int kCallsPerRepeat = 8, kRepeats = 7;
  const double seconds = best_seconds(threads, kRepeats, [&](int thread) {
    double done = 0;
    float sink = 0;
    for (int i = 0; i < kCallsPerRepeat; ++i) done += fma_round(&sink);
    operations[static_cast<size_t>(thread)] = done;
    sinks[static_cast<size_t>(thread) * 16] = sink;
  });
  double sum = 0;
  for (const double done : operations) sum += done;
  return sum / seconds;
}

double triad_peak(int threads, int64_t total_bytes) {
  const int64_t n = total_bytes / 12, part = (n + threads - 1) / threads;
  const auto a = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
  const auto b = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
  const auto c = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
  std::fill(a.get(), a.get() + n, 0.0F);
  std::fill(b.get(), b.get() + n, 1.0F);
  std::fill(c.get(), c.get() + n, 2.0F);
  constexpr int kRepeats = 7;
  const double seconds = best_seconds(threads, kRepeats, [&](int thread) {
    float* const to = a.get();
    const float *const x = b.get(), *const y = c.get();
    const int64_t end = std::min(n, (thread + 1) * part);
    for (int64_t i = thread * part; i < end; ++i) to[i] = x[i] + 3.0F * y[i];
  });
  return 12.0 * static_cast<double>(n) / seconds;
}

Peaks measure_peaks(int threads) {
  return {.threads = threads,
          .fma_flops = fma_peak(threads),
          .triad_bytes = triad_peak(threads, beyond_caches(this_machine()))};
}

}  // namespace lethe::bench
