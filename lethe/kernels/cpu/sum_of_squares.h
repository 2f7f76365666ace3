#pragma once

#include <cstdint>

namespace lethe::kernels {

/// Sum of values[i]^2 in double, in one written order: eight partial sums (i mod 8, i ascending),
/// added pairwise at the end. Not finite exactly when a value is not finite, or when doubles
/// overflow. The empty sum is 0.
double sum_of_squares(const float* values, int64_t count);
double sum_of_squares(const double* values, int64_t count);

/// Index of the first NaN or infinity, -1 if there is none.
int64_t first_not_finite(const float* values, int64_t count);
int64_t first_not_finite(const double* values, int64_t count);

}  // namespace lethe::kernels
