#pragma once

#include <cstdint>

// How kernels use several cores without owning a thread: the caller lends its pool.
namespace lethe::kernels {

/// A pool of threads as two plain pointers, so that kernels/ knows no thread library. Made by
/// lethe/ops (ATen's pool) and by the tests.
struct Parallel {
  int threads = 1;  // at most this many tasks run at a time, >= 1
  /// Calls task(context, i, thread) once for every i in [0, tasks), in any order, and returns when
  /// all are done. thread in [0, threads) numbers the executing thread: two tasks that run at the
  /// same time get different numbers. Tasks do not throw. nullptr: one after the other, thread 0.
  void (*run)(const void* pool,
              int64_t tasks,
              void (*task)(void* context, int64_t i, int thread),
              void* context) = nullptr;
  const void* pool = nullptr;

  /// run for a callable f(i, thread). A kernel's result must not depend on which thread does what:
  /// tasks write to disjoint places, in an order that only the shapes decide (spec 2 5.6).
  template <class F>
  void operator()(int64_t tasks, F&& f) const {
    if (run == nullptr || threads == 1 || tasks <= 1) {
      for (int64_t i = 0; i < tasks; ++i) f(i, 0);
      return;
    }
    const auto call = [](void* context, int64_t i, int thread) {
      (*static_cast<__typeof__(&f)>(context))(i, thread);
    };
    run(pool, tasks, call, &f);
  }
};

}  // namespace lethe::kernels
