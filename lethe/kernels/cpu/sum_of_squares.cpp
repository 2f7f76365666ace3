#include "lethe/kernels/cpu/sum_of_squares.h"

#include <cmath>

namespace lethe::kernels {
namespace {

template <class T>
double sum_of(const T* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      const double x = values[i + j];
      lane[j] += x * x;
    }
  for (int64_t j = 0; i < count; ++i, ++j) {
    const double x = values[i];
    lane[j] += x * x;
  }
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

template <class T>
int64_t first_not_finite_of(const T* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i])) return i;
  return -1;
}

}  // namespace

double sum_of_squares(const float* values, int64_t count) {
  return sum_of(values, count);
}

double sum_of_squares(const double* values, int64_t count) {
  return sum_of(values, count);
}

int64_t first_not_finite(const float* values, int64_t count) {
  return first_not_finite_of(values, count);
}

int64_t first_not_finite(const double* values, int64_t count) {
  return first_not_finite_of(values, count);
}

}  // namespace lethe::kernels
