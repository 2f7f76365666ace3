#include "lethe/kernels/cpu/sinkhorn.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, sinkhorn_forward, SinkhornForward)
LETHE_DISPATCH_ISA(void, sinkhorn_backward, SinkhornBackward)

}  // namespace lethe::kernels
