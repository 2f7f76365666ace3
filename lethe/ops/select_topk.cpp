#include "lethe/ops/select_topk.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/topk.h>

namespace lethe::ops {

at::Tensor select_topk(const at::Tensor& scores, const at::Tensor& visible, int64_t k) {
  const int64_t num_rows = scores.size(0), num_columns = scores.size(1);
  const auto index = at::TensorOptions().dtype(at::kLong).device(scores.device());
  at::Tensor selected = at::full({num_rows, k}, -1, index);
  if (num_columns == 0 || num_rows == 0) return selected;
  const at::Tensor seen =
      (at::arange(num_columns, index) < visible.unsqueeze(1)).logical_and(scores == scores);
  const at::Tensor masked =
      scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  // The k-th best value is unique although the columns that topk() reports among equals are not.
  const int64_t kept = std::min(k, num_columns);
  const at::Tensor cut = std::get<0>(masked.topk(kept, 1)).narrow(1, kept - 1, 1);
  const at::Tensor above = masked > cut, equal = (masked == cut).logical_and(seen);
  const at::Tensor room = kept - above.sum(1, /*keepdim=*/true);
  const at::Tensor chosen = above.logical_or(equal.logical_and(equal.cumsum(1) <= room));
  const at::Tensor places = chosen.nonzero();
  const at::Tensor rank = chosen.cumsum(1).masked_select(chosen) - 1;
  selected.view(-1).index_copy_(0, places.select(1, 0) * k + rank, places.select(1, 1));
  return selected;
}

}  // namespace lethe::ops
