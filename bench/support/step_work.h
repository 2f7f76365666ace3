#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/config/model_config.h"

namespace lethe::bench {

/// C [m,n] += A [m,k] B [k,n], `times` of them a step.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  double times = 1;

  [[nodiscard]] double flops() const {
    return 2.0 * times * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// What one kind of node costs in one step (forward and backward, float32), all layers together.
struct NodeWork {
  std::string name;
  double flops = 0;  // those of the matrix products included
  double bytes = 0;  // compulsory traffic: every operand read once, every result written once
  std::vector<Gemm> gemms;  // plain matrix products; empty for what has a kernel of its own
};

/// Visible keys of all queries of one document of `tokens`: sum of min(q+1, window), and of slots,
/// sum of min((q+1)/ratio, most).
[[nodiscard]] double window_keys(int64_t tokens, int64_t window);
[[nodiscard]] double slot_keys(int64_t tokens, int64_t ratio, int64_t most);

/// Sparse attention over `keys` keys of all queries together: forward 4 H c, backward 10 H c a key
/// (spec 2-foundations 5.2).
[[nodiscard]] double attention_forward_flops(double heads, double head_dim, double keys);
[[nodiscard]] double attention_backward_flops(double heads, double head_dim, double keys);

/// Indexer scores of `slots` visible slots: (2 dI + 3) nI each.
[[nodiscard]] double indexer_flops(double heads, double head_dim, double slots);

/// All nodes of a step over one document of `tokens`, indexers frozen (forward only, no KL loss):
/// linear layers cost 2 m n k forward and twice that backward, nothing is recomputed.
[[nodiscard]] std::vector<NodeWork> step_work(const ModelConfig& config, int64_t tokens);

/// The same for main layer `layer` alone, without embedding and head.
[[nodiscard]] std::vector<NodeWork> layer_work(const ModelConfig& config,
                                               int64_t layer,
                                               int64_t tokens);

/// The forward of all main layers, without embedding and head: what a replay of everything does.
[[nodiscard]] std::vector<NodeWork> replay_work(const ModelConfig& config, int64_t tokens);

[[nodiscard]] double total_flops(const std::vector<NodeWork>& nodes);

}  // namespace lethe::bench
