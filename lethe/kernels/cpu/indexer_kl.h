#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/indexer_grad.h"

namespace lethe::kernels {

/// KL divergence of the indexer's softmax Q from the teacher P over g.indices, or over all visible
/// slots, and the gradients of its sum over tokens: dI = Q - P. See lethe/ops/indexer_kl.h for P.
/// All arrays contiguous float32.
struct IndexerKl {
  IndexerGradients g;  // its scratch: indexer_kl_scratch_floats(...) floats
  int64_t heads, dim;  // H, c of the attention
  int64_t window;      // >= 1
  float scale;         // of <q, key>
  bool joint;          // else the conditional teacher
  const float* q;      // [T, H, c]
  const float* kv;     // [T, c]
  const float* slots;  // [C, c]
  const float* sink;   // [H]
  const float* lse;    // [T, H], or nullptr: from window, slots and sink
  const float* mass;   // [T, width] teacher up to a factor per token, with g.indices; or nullptr.
                       // A token whose masses sum to less than 1e-30 is computed from q and slots
  double* loss;        // [1], the tokens' in their order
};

void indexer_kl(const IndexerKl& a);
[[nodiscard]] int64_t indexer_kl_scratch_floats(const IndexerKl& a);

}  // namespace lethe::kernels
