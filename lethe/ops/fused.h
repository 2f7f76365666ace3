#pragma once

#include <atomic>

#include <ATen/core/Tensor.h>

#include "lethe/kernels/cpu/parallel.h"
#include "lethe/ops/implementation.h"

// Inside lethe/ops only: how an operator finds its kernel.
namespace lethe::ops {

/// One operator that has a kernel; a static object of its wrapper's file.
class Fusable {
 public:
  explicit Fusable(const char* op);
  Fusable(const Fusable&) = delete;
  Fusable& operator=(const Fusable&) = delete;

  /// Whether the kernel computes this call; `x` is the tensor that gives the computing type. Notes
  /// what runs, so ask once where the operator computes. Throws ConfigError where the choice is
  /// Fused and the kernel does not take x: not on the CPU, or float64.
  [[nodiscard]] bool runs(const at::Tensor& x);

  /// The same answer without a note: for the backward function that a forward records.
  [[nodiscard]] bool would_run(const at::Tensor& x) const;

 private:
  friend struct FusableOps;
  const char* op_;
  std::atomic<Implementation> choice_{Implementation::Auto};
  std::atomic<bool> ran_fused_{false}, ran_reference_{false};
};

/// ATen's thread pool for a kernel: the one pool of the process, sized by at::set_num_threads.
[[nodiscard]] kernels::Parallel aten_pool();

/// Uninitialised float32 scratch of this many floats, from the counted allocator.
[[nodiscard]] at::Tensor scratch(int64_t floats);

}  // namespace lethe::ops
