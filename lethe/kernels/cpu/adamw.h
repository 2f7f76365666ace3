#pragma once

#include <cstdint>

namespace lethe::kernels {

/// The numbers of one AdamW update that are the same for every element.
struct AdamwConstants {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double grad_scale = 1;
  int64_t update = 1;  // 1 = the first update of these elements: bias correction 1 - beta^update
};

/// One pass over four arrays of `count` elements; grad is read, the others are updated:
///   g = grad * grad_scale,  m = beta1*m + (1-beta1)*g,  v = beta2*v + (1-beta2)*g^2
///   param = param * (1 - lr*weight_decay) - lr/c1 * m / (sqrt(v/c2) + eps),  ci = 1 -
///   beta_i^update
/// Computed in the arrays' type, constants in double and rounded once. Elements are independent:
/// any split of the range gives the same bits. With m = v = 0 the last term is exactly 0 when eps >
/// 0 in that type. The arrays must not overlap. Source: Loshchilov and Hutter 2019 (decoupled
/// weight decay); model spec 12.
void adamw(
    const AdamwConstants& k, int64_t count, const float* grad, float* param, float* m, float* v);
void adamw(const AdamwConstants& k,
           int64_t count,
           const double* grad,
           double* param,
           double* m,
           double* v);

}  // namespace lethe::kernels
