#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/config/train_config.h"
#include "lethe/model/micro_batch.h"
#include "lethe/recompute/layer_tape.h"

namespace lethe {

/// The factors with which each loss of a micro-batch enters the gradient, and what the training
/// phase asks of the CSA layers (model spec 8.3). Token means over a global batch of several
/// micro-batches are sums here times 1 / (tokens of the whole batch).
struct LossFactors {
  double main = 0;          // times the sum of token losses: 1 / counted labels of the global batch
  std::vector<double> mtp;  // per depth, times its sum: lambda / (K * counted labels of that depth)
  double indexer =
      0;  // times the sum over tokens of the KL: coefficient / tokens of the global batch
  double balance = 0;  // times each layer's sequence-wise loss: alpha / micro-batches
  CsaAttention csa_attention = CsaAttention::Sparse;
  IndexerLoss indexer_loss = IndexerLoss::Off;
  IndexerTeacher teacher = IndexerTeacher::Joint;
  bool balance_hash_layers = false;  // --seq-aux-hash-layers
};

/// Receives intermediates by golden name ("layers.0.attn.q"); empty = nobody looks.
using Observer = std::function<void(const std::string& name, const at::Tensor& value)>;

/// Sums that a forward and its backward leave behind, per layer where they are per layer.
/// Owned by the caller of the model, one per micro-batch or one per step: never by a module.
struct RunTally {
  std::vector<double> indexer_kl;  // by layer: sum over tokens, written during backward
  std::vector<at::Tensor>
      expert_counts;  // by layer (MTP blocks behind): int64 [E]; undefined for hash layers
};

/// What is the same in all layers of one forward pass. Shared with the regions that run layers
/// again in backward.
struct ForwardPass {
  MicroBatch batch;
  LossFactors factors;
  Observer observer;
  RunTally& tally;
};

/// Everything that travels through the nodes of one layer for one micro-batch.
/// Letters: T tokens, n streams, D hidden, H heads, c head dim, C slots, k experts per token.
struct LayerState {
  // Fixed during the layer.
  std::shared_ptr<const ForwardPass> pass;
  LayerTape tape;
  std::string prefix;  // "layers.3." for the observer
  int64_t layer = 0;   // main layers, then MTP blocks

  at::Tensor streams;     // [T,n,D] in and out
  at::Tensor residual;    // [T,n,D] what mhc_post mixes
  at::Tensor post, comb;  // [T,n], [T,n,n]
  at::Tensor x;           // [T,D] the sub-layer's input, later its output

  // Attention half.
  at::Tensor x_slots_kv,
      x_slots_gate;      // forks of the attention input for the compressor's projections
  at::Tensor x_indexer;  // the same without history: the indexer's input (model spec 6)
  at::Tensor qa;         // [T,qr] without history
  at::Tensor q, kv;      // [T,H,c], [T,c]
  at::Tensor index_q, index_k, index_w, topk;  // [T,nI,dI], [C,dI], [T,nI], int32 [T,K]
  at::Tensor slots;                            // [C,c]
  at::Tensor o, lse;                           // [T,H,c] rotated back, [T,H]
  at::Tensor slot_mass;                        // [T,K] for the indexer's loss, else empty

  // MoE half.
  at::Tensor x_shared, x_experts;       // forks of the MoE input
  at::Tensor route_weights, route_ids;  // [T,k], int32 [T,k]
  at::Tensor routed, shared;            // [T,D]
  at::Tensor balance;                   // scalar loss of this layer with its factor, or undefined

  /// The fixed members alone, for nodes that a replay runs again.
  [[nodiscard]] LayerState without_tensors() const {
    return {.pass = pass, .tape = tape, .prefix = prefix, .layer = layer};
  }

  [[nodiscard]] const MicroBatch& batch() const { return pass->batch; }

  [[nodiscard]] const LossFactors& factors() const { return pass->factors; }

  /// Somebody looks, and has not seen this run's values in forward.
  [[nodiscard]] bool is_observed() const { return pass->observer && !in_replay(); }

  void observe(std::string_view name, const at::Tensor& value) const {
    if (is_observed()) off_record([&] { pass->observer(prefix + std::string(name), value); });
  }
};

/// Lets go of tensors after their last read, so that what no backward needs is freed at once (spec
/// 3 CR2).
template <class... T>
void drop(T&... tensors) {
  ((tensors = at::Tensor()), ...);
}

}  // namespace lethe
