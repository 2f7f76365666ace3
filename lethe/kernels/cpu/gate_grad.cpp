#include "lethe/kernels/cpu/gate_grad.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(int64_t, gate_backward_scratch, GateBackward)
LETHE_DISPATCH_ISA(void, gate_backward, GateBackward)

}  // namespace lethe::kernels
