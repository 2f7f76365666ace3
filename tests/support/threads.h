#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "lethe/kernels/cpu/isa.h"
#include "lethe/kernels/cpu/parallel.h"

// Threads for kernels that are tested without torch.
namespace lethe::test {

inline void run_in_threads(const void* pool,
                           int64_t tasks,
                           void (*task)(void* context, int64_t i, int thread),
                           void* context) {
  const int threads = *static_cast<const int*>(pool);
  std::atomic<int64_t> next{0};
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread)
    workers.emplace_back([&, thread] {
      for (int64_t i = next++; i < tasks; i = next++) task(context, i, thread);
    });
  for (std::thread& worker : workers) worker.join();
}

/// A pool of `threads` threads that live for one call; `threads` must outlive it.
inline kernels::Parallel threads_of(const int& threads) {
  return {.threads = threads, .run = &run_in_threads, .pool = &threads};
}

/// f() once for every instruction set of this CPU; the one in use before comes back.
template <class F>
void for_each_isa(F&& f) {
  const kernels::Isa before = kernels::active_isa();
  for (const kernels::Isa isa : kernels::usable_isas()) {
    kernels::use_isa(isa);
    f(isa);
  }
  kernels::use_isa(before);
}

}  // namespace lethe::test
