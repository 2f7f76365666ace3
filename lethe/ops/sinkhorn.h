#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Sinkhorn normalisation of stream-mixing logits: softmax over columns j plus eps, a column step,
/// then iterations - 1 times a row step and a column step.
///   column step: M[i][j] /= sum over i of M[i][j] + eps;  row step: the same over j
/// logits      [..., n, n] = [.., from i, to j] float32 | bfloat16 | float64; computed in float32
///             (float64 for float64), any strides
/// iterations  >= 1 (20 in every release)
/// Returns like logits, contiguous; columns sum to 1, rows only approximately.
/// Differentiable: only the logits are saved, backward repeats the steps; double backward: error.
/// Throws ShapeError, DtypeError, ConfigError. Deterministic for a fixed thread count.
/// Source: model spec 3.1, 3.4.
at::Tensor sinkhorn(const at::Tensor& logits, int64_t iterations, double eps);

namespace reference {
at::Tensor sinkhorn(const at::Tensor& logits, int64_t iterations, double eps);
}

}  // namespace lethe::ops
