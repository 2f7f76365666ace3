#include "lethe/plan/activation_bytes.h"

#include <algorithm>

namespace lethe {
namespace {

using Id = SubgraphId;

constexpr int64_t kComputingBytes = 4;  // float32 and int32

/// post [T, n] and comb [T, n, n].
int64_t mixing_elements(int64_t streams, uint8_t out) {
  return out == 1 ? streams : streams * streams;
}

int64_t indexer_bytes(const ModelConfig& m, const ActivationSizes& s, uint8_t out) {
  switch (out) {
    case 0:
      return s.tokens * s.chosen_slots * kComputingBytes;
    case 1:
      return s.tokens * m.index_heads * m.index_head_dim * s.activation_bytes;
    case 2:
      return s.slots * m.index_head_dim * s.activation_bytes;
    default:
      return s.tokens * m.index_heads * s.activation_bytes;
  }
}

int64_t sparse_bytes(const ModelConfig& m, const ActivationSizes& s, uint8_t out) {
  if (out == 0) return s.tokens * m.heads * m.head_dim * s.activation_bytes;
  return s.tokens * (out == 1 ? m.heads : s.chosen_slots) * kComputingBytes;
}

/// Keys and gates of the tokens before they are pooled; a CSA compressor has two halves of each.
int64_t pooled_bytes(const ActivationSizes& s, int64_t ratio, int64_t width) {
  const int64_t halves = ratio == kCsaRatio ? 2 : 1;
  return 2 * s.tokens * halves * width * s.activation_bytes;
}

/// Scores, weights, first products, and the experts: of a scored layer these are a choice, which
/// stays, and its balance loss saves their shares.
int64_t moe_bytes(const ModelConfig& m, const ActivationSizes& s, const LayerKind& kind) {
  const int64_t pairs = s.tokens * m.experts_per_token * kComputingBytes;
  const int64_t choice = kind.hash ? pairs : 0;
  const int64_t shares = s.balanced_documents * m.num_experts * kComputingBytes;
  return s.tokens * m.num_experts * kComputingBytes + pairs + choice + shares +
         expert_product_bytes(m, s, m.experts_per_token) + expert_product_bytes(m, s, 1);
}

// What a node saves is an activation of the flow, or stands between two of them in the part that
// makes the second. Each counts once, however many nodes save it.
int64_t layer_bytes(const ModelConfig& m,
                    const ActivationSizes& s,
                    const OperatorFacts& facts,
                    const LayerKind& kind) {
  const LayerFlow flow = layer_flow(kind, facts);
  int64_t sum = 0;
  for (const Activation& act : flow.acts) {
    const bool stays = act.is_choice || act.id.subgraph == Id::LayerInput;
    // The cast of an fp32 activation is that activation.
    const bool is_another = act.id.subgraph == Id::CompressCast && act.alias_group != 0;
    if (!stays && !is_another && !act.backward_readers.empty()) sum += act_bytes(m, s, act.id);
  }
  for (const Id part :
       {Id::AttnPre, Id::QDown, Id::Kv, Id::Indexer, Id::Compressor, Id::Oup, Id::MlpPre, Id::Moe})
    sum += inside_bytes(m, s, facts, kind, part);
  return sum;
}

}  // namespace

ActivationSizes sizes_of(const ModelConfig& model,
                         const MicroBatchShape& shape,
                         const LayerKind& kind) {
  const Documents& documents = shape.documents;
  ActivationSizes sizes{.tokens = documents.tokens()};
  if (shape.balanced && (!kind.hash || shape.balances_hash_layers))
    sizes.balanced_documents = documents.count();
  if (kind.ratio == 0) return sizes;
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    sizes.slots += documents.length(doc) / kind.ratio;
  sizes.chosen_slots = std::min(model.index_topk, documents.longest() / kind.ratio);
  return sizes;
}

int64_t act_bytes(const ModelConfig& m, const ActivationSizes& s, ActId id) {
  const int64_t a = s.activation_bytes, hidden = s.tokens * m.hidden * a;
  switch (id.subgraph) {
    case Id::AttnPre:
    case Id::MlpPre:
      return id.out == 0 ? hidden : s.tokens * mixing_elements(m.streams, id.out) * kComputingBytes;
    case Id::AttnNorm:
    case Id::Oup:
    case Id::AttnBda:
    case Id::MlpNorm:
    case Id::Moe:
    case Id::SharedExpert:
      return hidden;
    case Id::LayerInput:
    case Id::AttnPost:
    case Id::MlpPost:
    case Id::Layer:
      return hidden * m.streams;
    case Id::QUp:
    case Id::QUpNorm:
    case Id::QNorm:
      return s.tokens * m.heads * m.head_dim * a;
    case Id::Indexer:
      return indexer_bytes(m, s, id.out);
    case Id::CompressCast:
      return s.tokens * m.hidden * kComputingBytes;
    case Id::Sparse:
      return sparse_bytes(m, s, id.out);
    case Id::QDown:
      return s.tokens * m.q_lora_rank * a;
    case Id::Kv:
      return s.tokens * m.head_dim * a;
    case Id::Compressor:
      return s.slots * m.head_dim * a;
    case Id::Router:  // weights and ids of the choice, scores of every expert
      return s.tokens * (2 * m.experts_per_token + m.num_experts) * kComputingBytes;
    case Id::Dispatch:
      return hidden * m.experts_per_token;
  }
  return 0;
}

int64_t expert_product_bytes(const ModelConfig& m, const ActivationSizes& s, int64_t experts) {
  return s.tokens * experts * 2 * m.expert_width * s.activation_bytes;
}

int64_t inside_bytes(const ModelConfig& m,
                     const ActivationSizes& s,
                     const OperatorFacts& facts,
                     const LayerKind& kind,
                     SubgraphId id) {
  const int64_t a = s.activation_bytes;
  switch (id) {
    case Id::AttnPre:
    case Id::MlpPre:  // the mix, the reciprocal root mean square, the three scales as one tensor
      return (s.tokens * (m.mhc_rows() + 1) + 3) * kComputingBytes;
    case Id::QDown:
    case Id::Kv:  // before the norm
      return act_bytes(m, s, {id, 0});
    case Id::QUpNorm:
      return facts.q_norm_saves_output ? 0 : act_bytes(m, s, {Id::QUp, 0});
    case Id::Indexer:  // of its compressor; frozen without a loss
      return kind.has_indexer() && facts.indexer_loss
                 ? pooled_bytes(s, kind.ratio, m.index_head_dim)
                 : 0;
    case Id::Compressor:
      return kind.ratio > 0 ? pooled_bytes(s, kind.ratio, m.head_dim) : 0;
    case Id::Oup:  // behind o-down, and where G5 does not rotate, before it
      return s.tokens * m.o_groups * m.o_lora_rank * a +
             (facts.rotates_in_sparse ? 0 : act_bytes(m, s, {Id::Sparse, 0}));
    case Id::SharedExpert:
      return expert_product_bytes(m, s, 1);
    case Id::Moe:
      return moe_bytes(m, s, kind);
    case Id::Layer:
      return layer_bytes(m, s, facts, kind);
    default:
      return 0;
  }
}

}  // namespace lethe
