#include "lethe/kernels/cpu/gate.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(int64_t, gate_forward_scratch, GateForward)
LETHE_DISPATCH_ISA(void, gate_forward, GateForward)

}  // namespace lethe::kernels
