#include "lethe/ops/expert_rows.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/sort.h>

#include "lethe/base/error.h"

namespace lethe::ops {

ExpertRows sort_by_expert(const at::Tensor& indices, int64_t num_experts) {
  const at::Tensor experts = indices.reshape({-1});
  ExpertRows rows;
  rows.routes = std::get<1>(at::sort(experts, /*stable=*/true, /*dim=*/0, /*descending=*/false));
  rows.tokens = rows.routes.floor_divide(indices.size(1));
  const at::Tensor counts = at::bincount(experts, {}, num_experts).to(at::kCPU);
  rows.begins.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t e = 0; e < num_experts; ++e)
    rows.begins[static_cast<size_t>(e) + 1] = rows.begin(e) + counts.const_data_ptr<int64_t>()[e];
  return rows;
}

void check_expert_ids(const char* op, const at::Tensor& indices, int64_t num_experts) {
  if (indices.numel() == 0) return;
  const auto [least, most] = at::aminmax(indices);
  if (least.item<int32_t>() >= 0 && most.item<int32_t>() < num_experts) return;
  const at::Tensor bad = ((indices < 0) | (indices >= num_experts)).reshape({-1});
  const int64_t route = bad.to(at::kInt).argmax().item<int64_t>(), k = indices.size(1);
  fail<DataError>(
      "{} [expert ids]: indices must lie in [0, {}), got {} at token {}, choice {}; was the router "
      "built for "
      "another number of experts?",
      op,
      num_experts,
      indices.reshape({-1})[route].item<int64_t>(),
      route / k,
      route % k);
}

}  // namespace lethe::ops
