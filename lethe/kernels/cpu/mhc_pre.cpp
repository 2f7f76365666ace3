#include "lethe/kernels/cpu/mhc_pre.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, mhc_pre_forward, MhcPreForward)
LETHE_DISPATCH_ISA(void, mhc_pre_backward, MhcPreBackward)

}  // namespace lethe::kernels
