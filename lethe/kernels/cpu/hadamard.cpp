#include "lethe/kernels/cpu/hadamard.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, hadamard, Hadamard)

}  // namespace lethe::kernels
