#include "lethe/kernels/cpu/sparse_attention.h"

#include "lethe/kernels/cpu/isa_dispatch.h"

namespace lethe::kernels {

LETHE_DISPATCH_ISA(void, sparse_attention_forward, SparseAttentionForward)
LETHE_DISPATCH_ISA(void, sparse_attention_backward, SparseAttentionBackward)
LETHE_DISPATCH_ISA(SparseAttentionScratch, sparse_attention_scratch, SparseAttentionScratchOf)

}  // namespace lethe::kernels
