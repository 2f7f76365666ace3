#include "lethe/kernels/cpu/rope.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

int64_t rotary_table_floats(int64_t pairs) {
  constexpr int64_t kUnit = 32;
  return (2 * pairs + kUnit - 1) / kUnit * kUnit;
}

int64_t rotary_scratch_floats(int64_t pairs, int threads) {
  return threads * 2 * rotary_table_floats(pairs);
}

LETHE_DISPATCH_ISA(void, rope, Rope)

}  // namespace lethe::kernels
