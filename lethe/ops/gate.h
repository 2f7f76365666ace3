#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

namespace at {
class Tensor;
}

// The router of a mixture of experts. T tokens of width D, E experts, k experts per token.
// Source: model spec 9.1.
namespace lethe::ops {

struct GateOptions {
  int64_t k;                        // 1 <= k <= E
  std::string_view score_function;  // hub key scoring_func, see gate()
  bool normalize;
  double scale;
};

/// Scores, choice and weights of the experts in one operator, with l = x weight^T:
///   scores   "sqrtsoftplus"  s = sqrt(softplus(l)), softplus(l) = l above 20 (PyTorch's threshold)
///            "sigmoid"       s = 1 / (1 + exp(-l))
///            "softmax"       s = exp(l) / sum(exp(l)) over the experts
///   indices  the k experts with the largest s + bias (the bias only selects); ties: the lower id;
///            -0 counts as +0, NaN as the largest. Where `given` is passed: those, no choice is
///            made
///   weights  with p = s[t, indices[t]]:  normalize  p / (sum(p) + 1e-20) * scale,  else p * scale
/// x        [T,D] float32 | bfloat16 | float64, weight [E,D] float32 | bfloat16, float64 with
///          float64 x; any strides; computed in float32 (float64 for float64)
/// bias     [E] float32 (float64 with float64 x), or absent
/// given    [T,k] int32, strictly ascending in every row, or absent: a hash layer's gate_lookup, or
///          the indices of an earlier run
/// Returns (weights [T,k], indices int32 [T,k] ascending in every row, scores [T,E] without bias),
/// the floating ones in the computing type. weights and scores are differentiable in x and weight
/// (d_x in the dtype of x, d_weight in the computing type); the choice has no gradient. The slope
/// of sqrtsoftplus is sigmoid(l) / (2 s), above 20 1 / (2 s), and 0 where s has underflowed to 0.
/// Saves x, weight, scores, indices. Double backward: error.
/// Throws ConfigError (unknown score function), ShapeError, DtypeError; DataError naming the first
/// token with given ids out of range or order.
/// Deterministic for a fixed thread count; the kernel (float32, bfloat16 on the CPU): for any
/// thread count, and below l = -87 it keeps the scores that the float32 reference rounds or
/// flushes to 0.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gate(const at::Tensor& x,
                                                    const at::Tensor& weight,
                                                    const std::optional<at::Tensor>& bias,
                                                    const std::optional<at::Tensor>& given,
                                                    const GateOptions& options);

/// Ids of a hash layer's experts: the row of a fixed table that belongs to the token.
/// token_ids  [T] int64 in [0, V)
/// table      [V,k] int32, k distinct experts per row (hub tid2eid)
/// Returns int32 [T,k], ascending by expert id. Not differentiable.
/// Throws ShapeError, DtypeError; DataError naming a token id outside the table.
at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table);

/// Number of tokens per expert.
/// indices  [T,k] int32 in [0, num_experts); the caller leaves padding tokens out
/// Returns int64 [num_experts], zero where no token went. Not differentiable.
/// Throws ShapeError, DtypeError; DataError naming the first id out of range.
at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts);

namespace reference {
std::tuple<at::Tensor, at::Tensor, at::Tensor> gate(const at::Tensor& x,
                                                    const at::Tensor& weight,
                                                    const std::optional<at::Tensor>& bias,
                                                    const std::optional<at::Tensor>& given,
                                                    const GateOptions& options);

/// The three steps of gate(): scores of logits [T,E], the k best of scores, weights of the chosen.
at::Tensor gate_scores(const at::Tensor& logits, std::string_view score_function);
at::Tensor gate_select(const at::Tensor& scores, const std::optional<at::Tensor>& bias, int64_t k);
at::Tensor gate_weights(const at::Tensor& scores,
                        const at::Tensor& indices,
                        bool normalize,
                        double scale);

at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table);
at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts);
}  // namespace reference

}  // namespace lethe::ops
