#include "lethe/ops/rope.h"

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor rope(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool inverse) {
  const int64_t rotated = 2 * inv_freq.numel(), kept = x.size(-1) - rotated;
  // The angle is rounded to float32 whatever the computing type: the product is part of the
  // definition.
  at::Tensor angle = (positions.to(at::kFloat).unsqueeze(-1) * inv_freq).to(compute_dtype(x));
  if (x.dim() == 3) angle = angle.unsqueeze(1);
  const at::Tensor cos = angle.cos(), sin = inverse ? -angle.sin() : angle.sin();
  const at::Tensor pairs = widen(x.narrow(-1, kept, rotated)).unflatten(-1, {inv_freq.numel(), 2});
  const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  const at::Tensor y = at::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2);
  return at::cat({x.narrow(-1, 0, kept), y.to(x.scalar_type())}, -1);
}

}  // namespace lethe::ops::reference
