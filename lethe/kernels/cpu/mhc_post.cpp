#include "lethe/kernels/cpu/mhc_post.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, mhc_post_forward, MhcPostForward)
LETHE_DISPATCH_ISA(void, mhc_post_backward, MhcPostBackward)

}  // namespace lethe::kernels
