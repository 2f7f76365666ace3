#include "lethe/kernels/cpu/isa.h"

#include <atomic>

#include "lethe/base/error.h"

namespace lethe::kernels {
namespace {

std::vector<Isa> find_usable() {
  std::vector<Isa> isas{Isa::Portable};
#ifdef LETHE_KERNELS_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::Avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    isas.push_back(Isa::Avx512);
#endif
  return isas;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{usable_isas().back()};
  return isa;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::Portable:
      return "portable";
    case Isa::Avx2:
      return "avx2";
    case Isa::Avx512:
      return "avx512";
  }
  fail_internal("isa: unknown value");
}

const std::vector<Isa>& usable_isas() {
  static const std::vector<Isa> isas = find_usable();
  return isas;
}

Isa active_isa() {
  return chosen().load(std::memory_order_relaxed);
}

void use_isa(Isa isa) {
  bool usable = false;
  for (const Isa other : usable_isas()) usable = usable || other == isa;
  LETHE_CHECK(
      ConfigError,
      usable,
      "kernels [instruction set]: must be one that this CPU and this build have, got {}; the "
      "best one is {}",
      isa_name(isa),
      isa_name(usable_isas().back()));
  chosen() = isa;
}

}  // namespace lethe::kernels
