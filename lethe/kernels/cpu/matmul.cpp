#include "lethe/kernels/cpu/matmul.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, matmul, Matmul)
LETHE_DISPATCH_ISA(int64_t, matmul_scratch, MatmulSizes)

}  // namespace lethe::kernels
