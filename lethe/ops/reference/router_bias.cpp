#include "lethe/ops/router_bias.h"

#include <ATen/core/Tensor.h>

namespace lethe::ops::reference {

void update_router_bias(const at::Tensor& bias, const at::Tensor& counts, double rate) {
  // sign(mean(n) - n) = sign(sum(n) - E n)
  const at::Tensor direction = (counts.sum() - counts * counts.size(0)).sign();
  bias.add_(direction.to(bias.scalar_type()), rate);
}

}  // namespace lethe::ops::reference
