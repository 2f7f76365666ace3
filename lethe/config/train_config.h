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

/// What becomes of a document with more tokens than a sequence and its last label.
enum class LongDocuments {
  Auto,   // Split, but Error for data with a loss mask: a prompt would be cut from its response
  Split,  // windows of a sequence each (data/batches.h)
  Error,  // DataError naming the first such document
};

/// Which rule updates the matrices (model spec 12).
enum class TrainOptimizer { AdamW, Muon };

/// How the learning rate falls after the warm-up (Megatron's lr_decay_style, plan/learning_rate.h).
enum class DecayStyle { Constant, Linear, Cosine, Wsd };

/// How it falls in the last part of WSD: warm-up, stable, decay (Megatron's lr_wsd_decay_style).
enum class WsdDecayStyle { Linear, Cosine, Exponential };

/// What one training run does, apart from the shape of its model. A value: resolved once
/// (config/resolve.h), then read-only. Losses are in nats per token.
struct TrainConfig {
  std::string data;  // text, a prepared data set, or a blend (config/data_blend.h); empty = bundled
  LongDocuments long_documents = LongDocuments::Auto;
  double valid_fraction = 0.05;      // share of the text, by document position
  std::string output = "out/train";  // folder of the run
  bool overwrite = false;            // an existing run there may be replaced
  int64_t seq_length = 256;          // tokens per row
  int64_t micro_batch_size = 4;      // rows per forward and backward
  int64_t global_batch_size = 4;     // rows per step
  int64_t train_iters = 0;           // steps
  double max_seconds = 0;            // stop after this wall-clock time; 0 = no limit
  int64_t exit_interval = 0;         // stop after a step divisible by this; 0 = no
  bool tensorboard = true;           // event files beside the run record
  int64_t eval_interval = 100;       // steps between evaluations; 0 = only at the end
  int64_t eval_iters = 20;           // microbatches per evaluation
  int64_t log_interval = 10;         // steps between progress lines
  int64_t seed = 1234;               // initialisation and order of the data
  bool bf16 = false;                 // bfloat16 storage of the parameters, float32 masters
  TrainOptimizer optimizer = TrainOptimizer::AdamW;
  double muon_momentum = 0.95;    // mu of model spec 12
  double muon_update_rms = 0.18;  // gamma of model spec 12
  bool muon_split_heads = false;  // query heads as matrices of their own
  DecayStyle lr_decay_style = DecayStyle::Cosine;
  int64_t lr_decay_iters = 0;      // warm-up and decay end here; 0 = train_iters
  int64_t lr_wsd_decay_iters = 0;  // length of WSD's decay
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::Exponential;
  double lr = 0;                // peak learning rate
  double min_lr = 0;            // learning rate at the last step
  int64_t lr_warmup_iters = 0;  // steps of linear warm-up
  double weight_decay = 0.1;    // parameters of two or more dimensions
  double adam_beta1 = 0.9;      // model spec 12
  double adam_beta2 = 0.95;
  double adam_eps = 1e-20;
  double clip_grad = 1.0;                    // bound of the global gradient norm; 0 = off
  std::optional<double> indexer_loss_coeff;  // unset only where no ratio-4 layer exists; 0 freezes
  IndexerTeacher indexer_teacher = IndexerTeacher::Joint;
  CsaAttention csa_attention = CsaAttention::Sparse;
  IndexerLoss indexer_loss = IndexerLoss::Sparse;
  bool train_only_indexer = false;
  double mtp_loss_coeff = 0.3;                   // lambda of model spec 10
  std::optional<double> mtp_loss_coeff_decayed;  // from the first step of the decay; unset = same
  double balance_loss_coeff = 1e-4;              // alpha of model spec 9.3
  bool balance_hash_layers = false;  // model spec 9.3: hash layers do not learn their selection
  double router_bias_rate = 1e-3;    // u of model spec 9.3; 0 freezes the router bias
  bool operator==(const TrainConfig&) const = default;
};

/// What a save does while an earlier one in the background is under way (io/checkpoint_saver.h).
enum class SavePolicy { Wait, Skip };

/// Sums over the data files of a checkpoint.
enum class SaveIntegrity { Crc32c, Sha256 };

/// What a failed save does to the run.
enum class SaveFailure { Continue, Fatal };

/// Training checkpoints (command-line spec 4 and 7.5).
struct CheckpointConfig {
  std::optional<std::string> load;   // folder of checkpoints to go on from; unset = a new run
  std::string save;                  // folder to write to; empty = OUTPUT/checkpoints
  int64_t save_interval = 100;       // steps; 0 = only when the run stops
  int64_t save_retain_interval = 0;  // every step divisible by it stays; 0 = none
  int64_t keep_last = 2;
  bool async_save = false;
  SavePolicy async_save_policy = SavePolicy::Wait;
  SaveIntegrity integrity = SaveIntegrity::Crc32c;
  SaveFailure save_failure = SaveFailure::Continue;
  bool save_optim = true, save_rng = true;
  bool load_optim = true, load_rng = true;
  bool finetune = false;               // weights only, step 0
  bool allow_fallback = false;         // go on from an older one when the newest is damaged
  bool allow_setting_changes = false;  // settings of the run may differ from the checkpoint's
  bool operator==(const CheckpointConfig&) const = default;
};

}  // namespace lethe
