#include "lethe/ops/experts.h"

#include <ATen/ops/mm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/scatter_rows.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops::reference {

at::Tensor experts(const at::Tensor& x,
                   const at::Tensor& weights,
                   const at::Tensor& indices,
                   const at::Tensor& fc1,
                   const at::Tensor& fc2,
                   double limit) {
  const ExpertRows rows = sort_by_expert(indices, fc1.size(0));
  const at::Tensor row_x = x.index_select(0, rows.tokens);
  const at::Tensor row_weight = weights.reshape({-1, 1}).index_select(0, rows.routes);
  at::Tensor y = at::zeros(x.sizes(), x.options());
  for (int64_t e = 0; e < rows.experts(); ++e) {
    if (rows.count(e) == 0) continue;
    const at::Tensor activated =
        swiglu(at::mm(rows.of(row_x, e), widen(fc1.select(0, e)).t()), limit);
    add_rows(y,
             rows.of(rows.tokens, e),
             at::mm(activated.mul_(rows.of(row_weight, e)), widen(fc2.select(0, e)).t()));
  }
  return y;
}

}  // namespace lethe::ops::reference
