#include "lethe/kernels/cpu/adamw.h"

#include <cmath>

namespace lethe::kernels {
namespace {

template <class T>
void adamw_of(const AdamwConstants& k,
              int64_t count,
              const T* __restrict grad,
              T* __restrict param,
              T* __restrict m,
              T* __restrict v) {
  const double correction1 = 1 - std::pow(k.beta1, static_cast<double>(k.update));
  const double correction2 = 1 - std::pow(k.beta2, static_cast<double>(k.update));
  const T scale = static_cast<T>(k.grad_scale), eps = static_cast<T>(k.eps);
  const T keep_m = static_cast<T>(k.beta1), take_m = static_cast<T>(1 - k.beta1);
  const T keep_v = static_cast<T>(k.beta2), take_v = static_cast<T>(1 - k.beta2);
  const T keep_param = static_cast<T>(1 - k.lr * k.weight_decay);
  const T step_size = static_cast<T>(k.lr / correction1);
  const T root_scale = static_cast<T>(1 / std::sqrt(correction2));
  for (int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    m[i] = keep_m * m[i] + take_m * g;
    v[i] = keep_v * v[i] + take_v * (g * g);
    param[i] = keep_param * param[i] - step_size * (m[i] / (std::sqrt(v[i]) * root_scale + eps));
  }
}

}  // namespace

void adamw(
    const AdamwConstants& k, int64_t count, const float* grad, float* param, float* m, float* v) {
  adamw_of(k, count, grad, param, m, v);
}

void adamw(const AdamwConstants& k,
           int64_t count,
           const double* grad,
           double* param,
           double* m,
           double* v) {
  adamw_of(k, count, grad, param, m, v);
}

}  // namespace lethe::kernels
