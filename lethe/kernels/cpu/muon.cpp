#include "lethe/kernels/cpu/muon.h"

#include <algorithm>
#include <cmath>

#include "lethe/kernels/cpu/sum_of_squares.h"

namespace lethe::kernels {
namespace {

template <class T>
void momentum_of(const MuonMomentum& k,
                 int64_t count,
                 const T* __restrict grad,
                 T* __restrict m,
                 T* __restrict ahead) {
  const T mu = static_cast<T>(k.mu), scale = static_cast<T>(k.grad_scale);
  for (int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    m[i] = mu * m[i] + g;
    ahead[i] = mu * m[i] + g;
  }
}

template <class T>
void normalize_of(int64_t count, T* __restrict values) {
  const double norm = std::sqrt(sum_of_squares(values, count));
  if (norm == 0) {
    std::fill(values, values + count, T{0});
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(static_cast<double>(values[i]) / norm);
}

}  // namespace

void muon_momentum(
    const MuonMomentum& k, int64_t count, const float* grad, float* m, float* ahead) {
  momentum_of(k, count, grad, m, ahead);
}

void muon_momentum(
    const MuonMomentum& k, int64_t count, const double* grad, double* m, double* ahead) {
  momentum_of(k, count, grad, m, ahead);
}

void normalize(int64_t count, float* values) {
  normalize_of(count, values);
}

void normalize(int64_t count, double* values) {
  normalize_of(count, values);
}

}  // namespace lethe::kernels
