#include "lethe/kernels/cpu/cross_entropy.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, cross_entropy_forward, CrossEntropyForward)
LETHE_DISPATCH_ISA(void, cross_entropy_backward, CrossEntropyBackward)

}  // namespace lethe::kernels
