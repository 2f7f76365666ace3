#pragma once

#include <cstdint>
#include <utility>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Sequence-wise load balance loss of one layer, without its coefficient alpha.
///   per document of n tokens:  f_e = E / (k n) * #{t : e among the k largest scores of t}
///                              P_e = 1/n * sum_t s[t,e] / (sum_e' s[t,e'] + 1e-20)
///   loss = mean over the documents of sum_e f_e P_e
/// The k largest are those that gate takes without bias, whatever routed the tokens; 1e-20 as
/// there, so that a token whose scores all underflowed counts 0 instead of NaN.
/// scores      [T,E] float32 | float64, >= 0, without bias, any strides; T >= 1
/// cu_seqlens  [N+1] int32 on CPU, ends with T
/// k           1 <= k <= E
/// Returns a scalar like scores. Differentiable in scores, through P only. Double backward: error.
/// Throws ShapeError, DtypeError, ConfigError (cu_seqlens on another device).
/// Deterministic for a fixed thread count. Source: model spec 9.3.
at::Tensor balance_loss(const at::Tensor& scores, const at::Tensor& cu_seqlens, int64_t k);

namespace reference {
/// The loss and f [N,E], which the gradient needs.
std::pair<at::Tensor, at::Tensor> balance_loss(const at::Tensor& scores,
                                               const at::Tensor& cu_seqlens,
                                               int64_t k);
}  // namespace reference

}  // namespace lethe::ops
