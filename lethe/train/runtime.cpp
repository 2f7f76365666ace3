#include "lethe/train/runtime.h"

#include <cstdlib>

#include <unistd.h>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/config/operator_exceptions.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/kernels/cpu/isa.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

Kernels& remembered() {
  static Kernels kernels{"fused where a kernel takes the tensor", ""};
  return kernels;
}

std::string fused_name() {
  return fmt::format("fused ({})", kernels::isa_name(kernels::active_isa()));
}

Kernels choose_kernels(const ImplementationConfig& config, bool float64) {
  const bool automatic = config.dsa_kernel_backend == KernelBackend::Auto;
  LETHE_CHECK(ConfigError,
              !float64 || config.dsa_kernel_backend != KernelBackend::Fused,
              "--dsa-kernel-backend [type]: must be none or auto with --dtype fp64, got fused; the "
              "fused operators compute in float32");
  const bool fused = automatic ? !float64 : config.dsa_kernel_backend == KernelBackend::Fused;
  ops::ImplementationChoice choice{
      .all = fused ? ops::Implementation::Fused : ops::Implementation::Reference, .overrides = {}};
  Kernels kernels{.backend = fused ? fused_name() : "none",
                  .rule = automatic
                              ? "auto: fused where the command computes in float32 on the CPU, "
                                "else none"
                              : ""};
  for (const auto& [op, word] : operator_exceptions(config.operators)) {
    choice.overrides[op] = ops::parse_implementation(word);
    kernels.backend += fmt::format(", {}={}", op, word);
  }
  ops::choose_implementations(choice);
  return kernels;
}

}  // namespace

void prepare_runtime(const RunConfig& config, bool float64) {
  install_byte_accounting();
  if (config.threads > 0) at::set_num_threads(static_cast<int>(config.threads));
  remembered() = choose_kernels(config.implementation, float64);
}

const Kernels& chosen_kernels() {
  return remembered();
}

void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  execv("/proc/self/exe", argv);  // returns only on failure
}

}  // namespace lethe
