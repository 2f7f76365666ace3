#include "lethe/ops/rms_norm.h"

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps) {
  const at::Tensor wide = widen(x);
  at::Tensor y = wide * (wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
  if (weight) y = y * *weight;
  return y.to(x.scalar_type());
}

}  // namespace lethe::ops::reference
