#include "lethe/ops/hadamard.h"

#include <cmath>

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor hadamard(const at::Tensor& x) {
  const int64_t d = x.size(-1), rows = x.numel() / d;
  at::Tensor y = widen(x).reshape({rows, d});
  for (int64_t half = 1; half < d; half *= 2) {
    const at::Tensor blocks = y.reshape({rows, d / (2 * half), 2, half});
    const at::Tensor a = blocks.select(2, 0), b = blocks.select(2, 1);
    y = at::stack({a + b, a - b}, 2);
  }
  return (y * std::pow(static_cast<double>(d), -0.5)).reshape(x.sizes()).to(x.scalar_type());
}

}  // namespace lethe::ops::reference
