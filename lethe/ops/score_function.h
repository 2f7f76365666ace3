#pragma once

#include <string_view>

#include "lethe/kernels/cpu/gate.h"

// Inside lethe/ops only.
namespace lethe::ops {

using kernels::ScoreFunction;

/// Throws ConfigError listing the names.
ScoreFunction parse_score_function(std::string_view name);

/// PyTorch's softplus returns its argument above this, with derivative 1 (model spec 9.1).
inline constexpr double kSoftplusThreshold = 20;

/// Added to every sum that divides scores (model spec 9.1).
inline constexpr double kScoreSumFloor = 1e-20;

}  // namespace lethe::ops
