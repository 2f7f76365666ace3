#include "lethe/ops/norm_rope.h"

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"

namespace lethe::ops::reference {

at::Tensor norm_rope(const at::Tensor& x,
                     const std::optional<at::Tensor>& weight,
                     const at::Tensor& positions,
                     const at::Tensor& inv_freq,
                     double eps) {
  return rope(rms_norm(widen(x), weight, eps), positions, inv_freq, /*inverse=*/false)
      .to(x.scalar_type());
}

}  // namespace lethe::ops::reference
