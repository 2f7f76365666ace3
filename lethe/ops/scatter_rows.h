#pragma once

namespace at {
class Tensor;
}

// Inside lethe/ops only.
namespace lethe::ops {

/// destination[row_ids[i], :] += source[i, :], i ascending; ids of -1 are skipped.
/// destination [R, D] contiguous float32 | float64, source [N, D] of the same dtype, row_ids int64
/// [N]. Bitwise independent of the thread count on CPU; on CUDA ATen's sorted (deterministic)
/// accumulation.
void add_rows(at::Tensor& destination, const at::Tensor& row_ids, const at::Tensor& source);

}  // namespace lethe::ops
