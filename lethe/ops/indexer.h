#pragma once

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// What the lightning indexer scores. All three share one dtype, float32 | float64; any strides.
struct IndexerInputs {
  const at::Tensor& q;  // [T, nI, dI] rotated queries, nI and dI >= 1
  const at::Tensor& k;  // [C, dI] rotated keys, one per slot, documents in order
  const at::Tensor& w;  // [T, nI] head weights, already scaled by dI^-0.5 * nI^-0.5
};

/// Scores of every slot of a query's own document: I[t,j] = sum_h w[t,h] * relu(<q[t,h], k[j]>).
/// cu_seqlens  int32 [N+1] on the CPU: document starts of the T tokens
/// ratio       tokens per slot, >= 2; C must be the sum over documents of floor(length / ratio)
/// Returns [T, Cmax], columns are slots of the query's document counted from 0, Cmax = most slots
/// of any document; -inf where the slot is not yet complete at the query, (p+1)/ratio <= j, or does
/// not exist. Differentiable in q, k, w; double backward: error. Throws ShapeError, DtypeError.
/// Deterministic. Source: model spec 6, 5.3, 11.
at::Tensor indexer_scores(const IndexerInputs& inputs, const at::Tensor& cu_seqlens, int64_t ratio);

/// What lightning_indexer gives.
struct IndexerChoice {
  int64_t topk;                       // >= 1
  bool return_values = true;          // false: values is an empty tensor, and a query that sees at
                                      // most K' slots takes them all unscored, NaN scores included
  const at::Tensor* given = nullptr;  // int32 [T, K'], replayed: nothing is selected; every row
                                      // ascending slots that its query sees, then -1
};

/// The best slots of every query. Arguments as indexer_scores. The scores exist for one block of
/// queries at a time. Returns (indices int32 [T, K'], values [T, K']), K' = min(topk, Cmax), or
/// those given and their values. indices are rows of k, ascending, then -1; values are their
/// scores, -inf at -1. Higher score first, on equal score the lower slot; -0 counts as +0; a NaN
/// score is never selected. A query with no visible slot gets all -1. values are differentiable in
/// q, k, w, indices are not; double backward: error. Throws ShapeError (also for a given index that
/// is out of range, not visible or out of order), DtypeError. Deterministic: equal whatever the
/// block size and the number of threads. Source: model spec 6; spec 4 2.1.
std::tuple<at::Tensor, at::Tensor> lightning_indexer(const IndexerInputs& inputs,
                                                     const at::Tensor& cu_seqlens,
                                                     int64_t ratio,
                                                     const IndexerChoice& choice);

namespace reference {
at::Tensor indexer_scores(const IndexerInputs& inputs, const at::Tensor& cu_seqlens, int64_t ratio);
std::tuple<at::Tensor, at::Tensor> lightning_indexer(const IndexerInputs& inputs,
                                                     const at::Tensor& cu_seqlens,
                                                     int64_t ratio,
                                                     const IndexerChoice& choice);
}  // namespace reference

}  // namespace lethe::ops
