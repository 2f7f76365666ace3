#include "lethe/kernels/cpu/norm_rope.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, norm_rope_forward, NormRopeForward)
LETHE_DISPATCH_ISA(void, norm_rope_backward, NormRopeBackward)

}  // namespace lethe::kernels
