#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

// Inside lethe/ops only.
namespace lethe::ops {

/// Gradient of sinkhorn at the logits, from the logits alone: the steps are repeated, then
/// reversed. d_comb, logits [..., n, n] in one floating type, which is also the result's (model
/// spec 3.4).
at::Tensor sinkhorn_backward(const at::Tensor& d_comb,
                             const at::Tensor& logits,
                             int64_t iterations,
                             double eps);

}  // namespace lethe::ops
