#include "lethe/ops/experts.h"

#include <ATen/ops/mm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/scatter_rows.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor> experts(const at::Tensor& x,
                                           const at::Tensor& weights,
                                           const at::Tensor& indices,
                                           const at::Tensor& fc1,
                                           const at::Tensor& fc2,
                                           double limit,
                                           bool keep_projected) {
  const ExpertRows rows = sort_by_expert(indices, fc1.size(0));
  const at::Tensor row_x = x.index_select(0, rows.tokens);
  const at::Tensor row_weight = weights.reshape({-1, 1}).index_select(0, rows.routes);
  at::Tensor y = at::zeros(x.sizes(), x.options());
  const at::Tensor kept =
      at::empty({keep_projected ? indices.numel() : 0, fc1.size(1)}, x.options());
  for (int64_t e = 0; e < rows.experts(); ++e) {
    if (rows.count(e) == 0) continue;
    const at::Tensor projected = at::mm(rows.of(row_x, e), widen(fc1.select(0, e)).t());
    if (keep_projected) rows.of(kept, e).copy_(projected);
    const at::Tensor activated = swiglu(projected, limit).mul_(rows.of(row_weight, e));
    add_rows(y, rows.of(rows.tokens, e), at::mm(activated, widen(fc2.select(0, e)).t()));
  }
  return {y, kept};
}

}  // namespace lethe::ops::reference
