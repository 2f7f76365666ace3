#include <algorithm>
#include <atomic>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "lethe/ops/fused.h"

#ifndef _OPENMP
#error "at::parallel_for runs on one thread without OpenMP: compile this file with its flag"
#endif

namespace lethe::ops {
namespace {

using Task = void (*)(void* context, int64_t i, int thread);

// Every thread of ATen's pool claims tasks until none is left.
void run_in_aten_pool(const void*, int64_t tasks, Task task, void* context) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), tasks);
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread)
      for (int64_t i = next++; i < tasks; i = next++) task(context, i, static_cast<int>(thread));
  });
}

}  // namespace

kernels::Parallel aten_pool() {
  return {.threads = at::get_num_threads(), .run = &run_in_aten_pool, .pool = nullptr};
}

at::Tensor scratch(int64_t floats) {
  return at::empty({floats}, at::kFloat);
}

}  // namespace lethe::ops
