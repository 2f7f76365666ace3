#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lethe {

/// YaRN length extension of the compressed layers' rotary table (model spec 4.1).
struct YarnScaling {
  double factor = 16;
  int64_t original_max_positions = 65536;  // L0, tokens
  double beta_fast = 32;
  double beta_slow = 1;
  bool operator==(const YarnScaling&) const = default;
};

/// The shape of one DeepSeek-V4 model: everything that decides tensor sizes or the mathematics
/// (model spec 1.1). A value, validated once (config/validate.h), then read-only everywhere.
/// Names in comments are the hub's config.json keys.
struct ModelConfig {
  int64_t vocab_size = 0;       // vocab_size, V
  int64_t hidden = 0;           // hidden_size, D
  int64_t num_layers = 0;       // num_hidden_layers; MTP blocks not counted
  int64_t heads = 0;            // num_attention_heads, H
  int64_t head_dim = 512;       // head_dim, c
  int64_t rope_dims = 64;       // qk_rope_head_dim, rd: the trailing channels of every head
  int64_t q_lora_rank = 1024;   // q_lora_rank, qr
  int64_t o_groups = 8;         // o_groups, g
  int64_t o_lora_rank = 1024;   // o_lora_rank, go
  int64_t window = 128;         // sliding_window, W: keys per query, itself included
  std::vector<int64_t> ratios;  // compress_ratios, num_layers + num_mtp entries: 0, 4 or any r >= 2
  int64_t num_experts = 256;    // n_routed_experts, E
  int64_t experts_per_token = 6;  // num_experts_per_tok, k
  int64_t expert_width = 2048;    // moe_intermediate_size, I: routed and shared experts
  std::string score_function = "sqrtsoftplus";  // scoring_func: sqrtsoftplus | sigmoid | softmax
  bool normalize_topk = true;                   // norm_topk_prob
  double route_scale = 1.5;                     // routed_scaling_factor
  double swiglu_limit = 10;                     // swiglu_limit; 0 = no clamp
  bool clamp_shared_expert = true;
  int64_t num_hash_layers = 3;   // num_hash_layers: layers 0 .. n-1 route by token id
  int64_t num_mtp = 0;           // num_nextn_predict_layers
  int64_t index_heads = 64;      // index_n_heads, nI
  int64_t index_head_dim = 128;  // index_head_dim, dI: a power of two
  int64_t index_topk = 512;      // index_topk, K
  bool indexer_hadamard = true;
  int64_t streams = 4;                  // hc_mult, n
  int64_t sinkhorn_iterations = 20;     // hc_sinkhorn_iters
  double hc_eps = 1e-6;                 // hc_eps
  double norm_eps = 1e-6;               // rms_norm_eps
  double rope_theta = 10000;            // rope_theta: ratio-0 layers
  double compress_rope_theta = 160000;  // compress_rope_theta: layers with ratio > 0
  std::optional<YarnScaling> yarn;      // rope_scaling: with compress_rope_theta only
  int64_t max_positions = 1048576;      // max_position_embeddings
  double init_range = 0.02;             // initializer_range
  double init_alpha = 0.01;             // --mhc-init-gating-factor, from scratch only

  bool operator==(const ModelConfig&) const = default;

  /// Ratio of main layer i, or of MTP block i - num_layers.
  [[nodiscard]] int64_t ratio(int64_t layer) const { return ratios[static_cast<size_t>(layer)]; }

  [[nodiscard]] bool is_hash_layer(int64_t layer) const { return layer < num_hash_layers; }

  /// Rows of an mHC projection: n pre, n post, n*n comb.
  [[nodiscard]] int64_t mhc_rows() const { return (2 + streams) * streams; }
};

/// The overlapping ("CSA") compressor has two halves per slot and an indexer; both mean exactly
/// ratio 4.
inline constexpr int64_t kCsaRatio = 4;

}  // namespace lethe
