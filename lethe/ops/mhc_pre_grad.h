#pragma once

#include "lethe/core/node.h"

// Inside lethe/ops only.
namespace lethe::ops {

struct MhcPreSettings {
  int64_t iterations;
  double norm_eps, hc_eps;
};

/// Gradients of mhc_pre at streams, fn, base and scale; saved are these and the mix and r that
/// forward returned, gradients arrive at u, post and comb (model spec 3.4).
Tensors mhc_pre_backward(const BackwardInput& in, const MhcPreSettings& s);

/// The same by the kernel.
Tensors fused_mhc_pre_backward(const BackwardInput& in, const MhcPreSettings& s);

}  // namespace lethe::ops
