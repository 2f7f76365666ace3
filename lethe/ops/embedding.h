#pragma once

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Rows of a table: y[t] = weight[ids[t]].
/// ids     [T] int64, each in [0, V)
/// weight  [V, D] float32 | bfloat16 | float64
/// Returns y [T, D] float32 (float64 for float64), contiguous. Differentiable in weight: the rows
/// of dy are added in token order, and the gradient is of y's type; double backward: error. Throws
/// ShapeError, DtypeError; DataError naming the first token whose id is outside the table (on CPU;
/// on CUDA the gather's own assertion). Deterministic for any thread count. Source: model spec 2
/// (embedding: plain gather, no scaling).
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight);

namespace reference {
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight);
}

}  // namespace lethe::ops
