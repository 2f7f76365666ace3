#include "lethe/ops/sinkhorn.h"

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor sinkhorn(const at::Tensor& logits, int64_t iterations, double eps) {
  constexpr int64_t kFrom = -2, kTo = -1;
  at::Tensor m = widen(logits).softmax(kTo) + eps;
  m = m / (m.sum(kFrom, /*keepdim=*/true) + eps);
  for (int64_t i = 1; i < iterations; ++i) {
    m = m / (m.sum(kTo, true) + eps);
    m = m / (m.sum(kFrom, true) + eps);
  }
  return m.to(logits.scalar_type()).contiguous();
}

}  // namespace lethe::ops::reference
