#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// The k best of the leading `visible` columns of every row.
/// scores   [R, C] float32 | float64
/// visible  int64 [R]: columns [0, visible) may be selected
/// Returns int64 [R, k], ascending columns, then -1. Higher score first, on equal score the lower
/// column; -0 counts as +0; NaN is never selected. k may exceed C. Not differentiable.
/// Deterministic. Source: model spec 6 (ties).
at::Tensor select_topk(const at::Tensor& scores, const at::Tensor& visible, int64_t k);

}  // namespace lethe::ops
