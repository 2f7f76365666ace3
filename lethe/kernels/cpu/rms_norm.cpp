#include "lethe/kernels/cpu/rms_norm.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, rms_norm_forward, RmsNormForward)
LETHE_DISPATCH_ISA(void, rms_norm_backward, RmsNormBackward)

}  // namespace lethe::kernels
