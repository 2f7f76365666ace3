#pragma once

#include <string_view>

#include "lethe/recompute/recompute.h"

namespace lethe {

/// fn(inputs), a call that a region may keep (spec 3 6.4). Where the innermost region of this
/// thread names it in RegionSpec::keep, its results stay resident and its replay skips the call:
/// it fills in what is missing of the call's arguments, and returns the kept results. Everywhere
/// else: fn(inputs).
/// fn takes every tensor that it differentiates as an input, or is it a parameter. Calls are
/// matched by name and order. Throws RecomputeError: R6.18 when a replay calls another one than
/// forward, R6.19 when a kept result was written to since, R6.21 when fn writes into an input or
/// returns one, R6.24 when it draws random numbers, R6.17 inside of a nested region.
Tensors op_call(std::string_view name, const RegionFn& fn, const Tensors& inputs);

}  // namespace lethe
