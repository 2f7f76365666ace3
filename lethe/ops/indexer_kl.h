#pragma once

#include <functional>
#include <tuple>

#include "lethe/ops/indexer.h"
#include "lethe/ops/sparse_attention.h"

namespace lethe::ops {

/// Where the teacher of the indexer gets its probabilities.
struct KlTeacher {
  const AttentionInputs& attention;  // slots present; indices present = the loss runs over them
                                     // (sparse), absent = over all visible slots (dense)
  const std::optional<at::Tensor>&
      lse;             // [T, H] lse_with_sink of an attention over exactly these slots;
                       // absent = recomputed over window + slots + sink. Joint only
  AttentionRule rule;  // ratio >= 2
  bool joint = true;   // false: per-head softmax over the slots alone ("conditional")
  const at::Tensor* slot_mass = nullptr;  // [T, K'] sum_h exp(z_hj - F_h) up to a factor per row, 0
                                          // at -1, as sparse_attention gives it: P is it divided by
                                          // its sum, q and slots are not read but for rows that sum
                                          // to less than 1e-30. Joint with indices only
};

/// KL divergence of the indexer's softmax Q from the teacher P over the slot set A of each query,
/// and its gradients.
///   T_j = sum_h exp(z_hj - F_h),  P = T / sum_A T,  Q = softmax_A(I),  loss_t = sum_A P (ln P - ln
///   Q)
/// F is log of window + slots + sink mass (joint) or of the slots' mass (conditional). The gradient
/// is that of the sum over tokens: dI = Q - P exactly. Queries with empty A contribute exactly 0.
/// Returns (d_index_q, d_index_k, d_index_w like their inputs, loss [1] = SUM over tokens),
/// un-normalised. No tensor is differentiated through; teacher tensors and index inputs must not
/// require a gradient under grad mode (ConfigError): detach them, or use attach_indexer_kl. Throws
/// ShapeError, DtypeError, ConfigError. Deterministic. Source: model spec 8.1; spec 4 2.3.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> indexer_kl(const KlTeacher& teacher,
                                                                      const IndexerInputs& index);

/// Receives the loss [1] = SUM over tokens, not scaled; called in backward, once per backward.
using ReportLoss = std::function<void(const at::Tensor& loss_sum)>;

/// Identity on `out` (any shape; same storage), whose backward passes d_out through, runs
/// indexer_kl and sends scale_factor * gradient to index.q, index.k, index.w. The teacher's tensors
/// are detached here. Without grad mode, or when nothing requires a gradient, `out` comes back and
/// report is never called. Source: spec 4 7.
at::Tensor attach_indexer_kl(const at::Tensor& out,
                             const KlTeacher& teacher,
                             const IndexerInputs& index,
                             double scale_factor,
                             ReportLoss report);

namespace reference {
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> indexer_kl(const KlTeacher& teacher,
                                                                      const IndexerInputs& index);
}

}  // namespace lethe::ops
