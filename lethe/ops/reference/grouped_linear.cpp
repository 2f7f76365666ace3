#include "lethe/ops/grouped_linear.h"

#include <ATen/ops/bmm.h>

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor grouped_linear(const at::Tensor& o, const at::Tensor& w, int64_t groups) {
  const at::Tensor by_group = widen(o).unflatten(1, {groups, w.size(1)}).transpose(0, 1);
  const at::Tensor maps = widen(w).unflatten(0, {groups, w.size(0) / groups});
  return at::bmm(by_group, maps.transpose(1, 2))
      .transpose(0, 1)
      .flatten(1)
      .contiguous()
      .to(o.scalar_type());
}

}  // namespace lethe::ops::reference
