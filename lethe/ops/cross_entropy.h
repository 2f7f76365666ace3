#pragma once

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Language model head and cross-entropy in one: the logits exist for `chunk_tokens` tokens at a
/// time, in forward and again in backward, never as [T,V].
///   token_loss[t] = log(sum_v exp(l[t,v])) - l[t, labels[t]],  l = hidden head^T;  0 where the
///   label is -100
/// hidden        [T,D] float32 | float64, any strides; the logits have the same dtype
/// head          [V,D] of the same dtype, or bfloat16 with float32 (widened once; its gradient is
///               float32)
/// labels        [T] int64: -100 or in [0, V)
/// chunk_tokens  >= 1; moves the results only within rounding
/// Returns (sum of token_loss, token_loss [T]). The caller divides by the number of counted tokens,
/// of all microbatches together. The sum is differentiable in hidden and head, token_loss is not;
/// saves hidden, head, labels and one log-sum-exp per token. All labels -100: loss 0 and zero
/// gradients. Double backward: error.
/// Throws ShapeError, DtypeError, ConfigError (chunk_tokens < 1); DataError naming the first bad
/// label. Deterministic for a fixed thread count.
/// Source: model spec 10 (loss masks), 3-recompute 4.2 (head_loss).
std::tuple<at::Tensor, at::Tensor> cross_entropy(const at::Tensor& hidden,
                                                 const at::Tensor& head,
                                                 const at::Tensor& labels,
                                                 int64_t chunk_tokens);

namespace reference {
/// (loss sum, token_loss, log-sum-exp [T]); the last is what backward needs.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(const at::Tensor& hidden,
                                                             const at::Tensor& head,
                                                             const at::Tensor& labels,
                                                             int64_t chunk_tokens);
}  // namespace reference

}  // namespace lethe::ops
