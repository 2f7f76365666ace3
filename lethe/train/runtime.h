#pragma once

#include <string>

#include "lethe/config/run_config.h"

namespace lethe {

/// What computes in this process.
struct Kernels {
  std::string
      backend;       // "fused (avx2)" | "none"; exceptions behind it: "fused (avx2), rms_norm=none"
  std::string rule;  // why, where the setting left it open; else empty
};

/// Makes this process ready for tensors: exact byte accounting, CPU threads (0 = as many as
/// LibTorch chooses) and the implementation of the operators, resolved here and never changed
/// again. Call it once, before the first tensor. float64: the command computes in float64.
///   auto = fused where the computing type is float32, else none (this build computes on the CPU)
/// Throws ConfigError for fused with float64, for an exception that names no operator with a
/// kernel.
void prepare_runtime(const RunConfig& config, bool float64);

/// What prepare_runtime chose; before it, what operators do without a choice.
[[nodiscard]] const Kernels& chosen_kernels();

/// Makes the OpenMP threads of this process sleep while they wait, unless OMP_WAIT_POLICY says
/// otherwise: threads that spin make a two-thread step slower than one thread (spec 2 2.5). OpenMP
/// reads its environment when its library loads, which is before main, so the program starts itself
/// again. Call it first in main, with main's argv; where the restart fails the process goes on.
void wait_passively(char** argv);

}  // namespace lethe
