#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace at {
class Tensor;
}

// The steps of a router, in the order in which a layer runs them: scores, expert ids (gate_select
// in a scored layer, gate_lookup in a hash layer), weights; expert_counts feeds the bias update.
// T tokens, E experts, k experts per token. Source: model spec 9.1.
namespace lethe::ops {

/// Scores of every expert.
///   "sqrtsoftplus"  s = sqrt(softplus(l)), softplus(l) = l above 20 (PyTorch's threshold)
///   "sigmoid"       s = 1 / (1 + exp(-l))
///   "softmax"       s = exp(l) / sum(exp(l)) over the experts
/// logits          [T,E] float32 | float64, any strides
/// score_function  the name, hub key scoring_func
/// Returns [T,E] like logits. Differentiable in logits; the slope of sqrtsoftplus is
/// sigmoid(l) / (2 s), above 20 1 / (2 s), and 0 where s has underflowed to 0.
/// Double backward: error. Deterministic for a fixed thread count.
/// Throws ConfigError (unknown name), ShapeError, DtypeError.
at::Tensor gate_scores(const at::Tensor& logits, std::string_view score_function);

/// Ids of the k experts with the largest score + bias; the bias only selects (model spec 9.1).
/// Ties: the higher sum, then the lower expert id; -0 counts as +0; NaN counts as the largest.
/// scores  [T,E] float32 | float64, any strides
/// bias    [E] float32 | float64, or absent
/// k       1 <= k <= E
/// Returns int32 [T,k], ascending by expert id. Not differentiable.
/// Bitwise independent of the thread count. Throws ShapeError, DtypeError.
at::Tensor gate_select(const at::Tensor& scores, const std::optional<at::Tensor>& bias, int64_t k);

/// Ids of a hash layer's experts: the row of a fixed table that belongs to the token.
/// token_ids  [T] int64 in [0, V)
/// table      [V,k] int32, k distinct experts per row (hub tid2eid)
/// Returns int32 [T,k], ascending by expert id. Not differentiable.
/// Throws ShapeError, DtypeError; DataError naming a token id outside the table.
at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table);

/// Weights of the chosen experts, with p = scores[t, indices[t]]:
///   normalize      w = p / (sum(p) + 1e-20) * scale
///   not normalize  w = p * scale
/// scores   [T,E] float32 | float64, without bias, any strides
/// indices  [T,k] int32, strictly ascending in every row, as gate_select and gate_lookup give them
/// Returns [T,k] like scores. Differentiable in scores, zero for experts that were not chosen; the
/// choice itself has no gradient. Double backward: error. Deterministic for a fixed thread count.
/// Throws ShapeError, DtypeError; DataError naming the first token with ids out of range or order.
at::Tensor gate_weights(const at::Tensor& scores,
                        const at::Tensor& indices,
                        bool normalize,
                        double scale);

/// Number of tokens per expert.
/// indices  [T,k] int32 in [0, num_experts); the caller leaves padding tokens out
/// Returns int64 [num_experts], zero where no token went. Not differentiable.
/// Throws ShapeError, DtypeError; DataError naming the first id out of range.
at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts);

namespace reference {
at::Tensor gate_scores(const at::Tensor& logits, std::string_view score_function);
at::Tensor gate_select(const at::Tensor& scores, const std::optional<at::Tensor>& bias, int64_t k);
at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table);
at::Tensor gate_weights(const at::Tensor& scores,
                        const at::Tensor& indices,
                        bool normalize,
                        double scale);
at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts);
}  // namespace reference

}  // namespace lethe::ops
