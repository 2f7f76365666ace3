#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/layer.h"
#include "lethe/model/layer_state.h"
#include "lethe/model/micro_batch.h"
#include "lethe/model/mtp.h"
#include "lethe/model/rope_tables.h"
#include "lethe/recompute/layer_tape.h"

namespace lethe {

/// What one forward pass returns. Sums are over counted tokens; `total` is what backward starts
/// from.
struct ModelOutput {
  at::Tensor total;                  // scalar: main, MTP and balance losses times their factors
  at::Tensor main_sum;               // scalar, detached: sum of the token losses
  std::vector<at::Tensor> mtp_sums;  // per depth, detached
  at::Tensor balance;  // scalar, detached: sum over layers, with its factor; undefined when off
};

/// The DeepSeek-V4 model over a parameter store (model spec 2). Holds weights and the layer
/// programs; nothing of a micro-batch.
class DeepseekV4 final {
 public:
  /// Builds the store from the contract table (uninitialised values) and the modules over it.
  DeepseekV4(const ModelConfig& config, ParamPlacement placement);
  ~DeepseekV4();
  DeepseekV4(const DeepseekV4&) = delete;
  DeepseekV4& operator=(const DeepseekV4&) = delete;

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  [[nodiscard]] ParamStore& params() { return *store_; }

  [[nodiscard]] const ParamStore& params() const { return *store_; }

  /// Forward of everything: trunk, MTP blocks, all losses. `tally` must come from make_tally and
  /// live until backward has run, and so must the model; indexer losses are written there during
  /// backward. recompute: what is forgotten and run again in backward, and what
  /// waits in a host tier; the values are the same.
  [[nodiscard]] ModelOutput forward(const MicroBatch& batch,
                                    const LossFactors& factors,
                                    RunTally& tally,
                                    const Observer& observer = {},
                                    const RecomputePass& recompute = {}) const;

  /// Forward of the trunk only: the hidden state before the LM head, [T,D].
  [[nodiscard]] at::Tensor hidden(const MicroBatch& batch) const;

  /// Sum of the main token losses over counted labels, scalar: for evaluation under no-grad.
  [[nodiscard]] at::Tensor main_loss_sum(const MicroBatch& batch) const;

  /// float32 logits of hidden states, [N,V] (for sampling and comparison; losses never hold them).
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden_ND) const;

  [[nodiscard]] RunTally make_tally() const;

  /// The frozen router biases by layer (MTP blocks behind), undefined for hash layers.
  [[nodiscard]] std::vector<at::Tensor> router_biases() const;

  /// The nodes of main layer i in order.
  [[nodiscard]] const std::vector<Node>& program(int64_t layer) const;

 private:
  at::Tensor run_trunk(LayerState& state,
                       const at::Tensor& embed_weight,
                       const RecomputePass& recompute) const;
  [[nodiscard]] LayerTape layer_tape(const RecomputePass& recompute,
                                     const MicroBatch& batch,
                                     int64_t layer) const;

  ModelConfig config_;
  std::unique_ptr<ParamStore> store_;
  RopeTables rope_;
  at::Tensor embed_, lm_head_, final_norm_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<StreamHead> stream_head_;
  std::vector<std::unique_ptr<MtpBlock>> mtp_;
};

/// Whether the row belongs to an indexer (trained by the KL loss alone).
bool is_indexer_param(const ParamRow& row);

}  // namespace lethe
