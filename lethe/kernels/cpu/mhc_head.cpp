#include "lethe/kernels/cpu/mhc_head.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, mhc_head_forward, MhcHeadForward)
LETHE_DISPATCH_ISA(void, mhc_head_backward, MhcHeadBackward)

}  // namespace lethe::kernels
