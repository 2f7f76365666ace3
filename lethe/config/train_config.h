#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lethe/config/model_config.h"

namespace lethe {

/// Distribution that the indexer learns to predict (model spec 8.1).
enum class IndexerTeacher { Joint, Conditional };

/// What the attention of a ratio-4 layer reads: every visible slot, or the top-k (model spec 8.3).
enum class CsaAttention { Dense, Sparse };

/// Slots over which the indexer's KL loss runs (model spec 8.3).
enum class IndexerLoss { Off, Dense, Sparse };

/// What one training run does, apart from the shape of its model. A value: resolved once
/// (config/resolve.h), then read-only. Losses are in nats per token.
struct TrainConfig {
  std::string data;                  // a file or a folder of text; empty = the bundled text
  double valid_fraction = 0.05;      // share of the text, by document position
  std::string output = "out/train";  // folder of the run
  bool overwrite = false;            // an existing run there may be replaced
  int64_t seq_length = 256;          // tokens per row
  int64_t micro_batch_size = 4;      // rows per forward and backward
  int64_t global_batch_size = 4;     // rows per step
  int64_t train_iters = 0;           // steps
  double max_seconds = 0;            // stop after this wall-clock time; 0 = no limit
  int64_t eval_interval = 100;       // steps between evaluations; 0 = only at the end
  int64_t eval_iters = 20;           // microbatches per evaluation
  int64_t log_interval = 10;         // steps between progress lines
  int64_t seed = 1234;               // initialisation and order of the data
  double lr = 0;                     // peak learning rate
  double min_lr = 0;                 // learning rate at the last step
  int64_t lr_warmup_iters = 0;       // steps of linear warm-up
  double weight_decay = 0.1;         // parameters of two or more dimensions
  double adam_beta1 = 0.9;           // model spec 12
  double adam_beta2 = 0.95;
  double adam_eps = 1e-20;
  double clip_grad = 1.0;                    // bound of the global gradient norm; 0 = off
  std::optional<double> indexer_loss_coeff;  // unset only where no ratio-4 layer exists; 0 freezes
  IndexerTeacher indexer_teacher = IndexerTeacher::Joint;
  CsaAttention csa_attention = CsaAttention::Sparse;
  IndexerLoss indexer_loss = IndexerLoss::Sparse;
  bool train_only_indexer = false;
  double mtp_loss_coeff = 0.3;       // lambda of model spec 10
  double balance_loss_coeff = 1e-4;  // alpha of model spec 9.3
  bool balance_hash_layers = false;  // model spec 9.3: hash layers do not learn their selection
  double router_bias_rate = 1e-3;    // u of model spec 9.3; 0 freezes the router bias
  bool operator==(const TrainConfig&) const = default;
};

}  // namespace lethe
