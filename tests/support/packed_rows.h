#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

// Rows of documents for the tests of the attention operators.
namespace lethe::test {

using Lengths = std::vector<int64_t>;

/// Each length of model spec 15 alone, then packed mixes of them.
const std::vector<Lengths>& packed_rows();

/// "[3,4,5]", for SCOPED_TRACE.
std::string lengths_text(const Lengths& lengths);

/// int32 [N+1].
at::Tensor cu_of(const Lengths& lengths);

int64_t tokens_of(const Lengths& lengths);

int64_t slots_of(const Lengths& lengths, int64_t ratio);

/// Interleaved rotation of the last 2*numel(inv_freq) channels of x [T, ...], differentiable, in
/// x's dtype; angles are float32 products.
at::Tensor rotated(const at::Tensor& x,
                   const std::vector<int64_t>& positions,
                   const at::Tensor& inv_freq);

/// Slots of every query over the whole row: int32 [T, k], random visible ones, ascending, then -1.
at::Tensor random_selection(const Lengths& lengths, int64_t ratio, int64_t k);

/// A detached leaf copy of t [B, ...] as the packed row [B*..., ...] of its first two dimensions.
at::Tensor packed_leaf(const at::Tensor& t);

}  // namespace lethe::test
