#pragma once

#include <vector>

namespace lethe {

struct ParameterGroup;

/// L2 norm over the gradients (.grad) of all parameters; those without a gradient count as 0.
/// Sums in double, in the order of the groups and their tensors: the bits do not depend on threads.
/// Gradients have their parameter's dtype.
/// Throws NumericError naming the first parameter whose gradient holds a NaN or an infinity, in
/// that order.
double grad_norm(const std::vector<ParameterGroup>& groups);

/// Factor that brings gradients of norm `norm` down to `max_norm`: min(1, max_norm / (norm +
/// 1e-6)). norm finite, max_norm > 0 (ConfigError).
double clip_coefficient(double norm, double max_norm);

}  // namespace lethe
