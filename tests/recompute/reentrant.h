#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/recompute/recompute.h"

namespace lethe::test {

/// What the references do (spec 3 2.2, parity mode A): the region is one node, whose backward runs
/// the function again and then a backward pass of its own. The sums of gradients associate
/// differently from the plain graph, so bits differ: the negative control. `parameters` must name
/// every parameter that fn reads; RecomputeError E8 in backward for one that it does not.
Tensors reentrant_region(const std::string& name,
                         const RegionFn& fn,
                         const Tensors& inputs,
                         const Tensors& parameters);

}  // namespace lethe::test
