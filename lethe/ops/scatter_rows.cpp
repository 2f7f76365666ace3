#include "lethe/ops/scatter_rows.h"

#include <ATen/Context.h>
#include <ATen/ops/index_add.h>

#include "lethe/base/error.h"
#include "lethe/kernels/cpu/scatter_rows.h"

namespace lethe::ops {
namespace {

template <class T>
void add_rows_cpu(at::Tensor& destination, const at::Tensor& row_ids, const at::Tensor& source) {
  kernels::add_rows(row_ids.const_data_ptr<int64_t>(),
                    row_ids.numel(),
                    destination.size(1),
                    source.const_data_ptr<T>(),
                    destination.data_ptr<T>());
}

void add_rows_cuda(at::Tensor& destination, const at::Tensor& row_ids, const at::Tensor& source) {
  auto& context = at::globalContext();
  const bool before = context.deterministicAlgorithms();
  const at::Tensor kept = (row_ids >= 0).unsqueeze(1);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  destination.index_add_(0, row_ids.clamp_min(0), source * kept);
  context.setDeterministicAlgorithms(before, /*warn_only=*/false);
}

}  // namespace

void add_rows(at::Tensor& destination, const at::Tensor& row_ids, const at::Tensor& source) {
  if (!destination.is_contiguous() || destination.dim() != 2 ||
      source.scalar_type() != destination.scalar_type())
    fail_internal("add_rows: destination must be a contiguous matrix of the source's dtype");
  if (!destination.device().is_cpu()) return add_rows_cuda(destination, row_ids, source);
  const at::Tensor ids = row_ids.contiguous(), rows = source.contiguous();
  if (destination.scalar_type() == at::kDouble) return add_rows_cpu<double>(destination, ids, rows);
  add_rows_cpu<float>(destination, ids, rows);
}

}  // namespace lethe::ops
