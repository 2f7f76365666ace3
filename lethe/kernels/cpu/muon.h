#pragma once

#include <cstdint>

namespace lethe::kernels {

/// The momentum of one Muon update, one pass over arrays of `count` elements (model spec 12):
///   g = grad * grad_scale,  m <- mu * m + g,  ahead = mu * m + g
/// Computed in the arrays' type, constants rounded once. Elements are independent. The arrays must
/// not overlap.
struct MuonMomentum {
  double mu = 0.95;
  double grad_scale = 1;
};

void muon_momentum(const MuonMomentum& k, int64_t count, const float* grad, float* m, float* ahead);
void muon_momentum(
    const MuonMomentum& k, int64_t count, const double* grad, double* m, double* ahead);

/// Divides the elements by the root of their sum of squares, in double, rounded once. All zero (or
/// squares below double's range): they become zeros.
void normalize(int64_t count, float* values);
void normalize(int64_t count, double* values);

}  // namespace lethe::kernels
