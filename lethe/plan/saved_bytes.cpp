#include "lethe/plan/saved_bytes.h"

#include <algorithm>

#include <fmt/format.h>

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

/// Of a token's first product in `experts` of them, gate and up.
int64_t expert_product_bytes(const ModelConfig& m, const ActivationSizes& s, int64_t experts) {
  return s.tokens * experts * 2 * m.expert_width * s.activation_bytes;
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

// An output that only the region's own nodes save is no more than another value inside.
bool saved_only_inside(Id region, const std::vector<Event>& savers) {
  const SubgraphInfo& span = subgraph_info(region);
  return std::all_of(savers.begin(), savers.end(), [&](Event saver) {
    return saver >= span.first && saver <= span.last;
  });
}

// Of outputs that stay.
std::vector<std::string> holders_in(const LayerFlow& flow, const LayerPlan& layer, Id region) {
  std::vector<std::string> holders;
  const RegionRule* rule = layer.find(region);
  if (rule == nullptr) return holders;
  for (const ActId out : rule->outputs) {
    const Activation* activation = flow.find(out);
    const ActRule* act = layer.find(out);
    if (activation == nullptr || (act != nullptr && act->keep == Keep::Release)) continue;
    const std::vector<Event> savers = activation->backward_readers.events();
    if (saved_only_inside(region, savers)) continue;
    for (const Event saver : savers) {
      const std::string name(node_name(saver));
      if (std::find(holders.begin(), holders.end(), name) == holders.end()) holders.push_back(name);
    }
  }
  return holders;
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

int64_t inside_bytes(const ModelConfig& m,
                     const ActivationSizes& s,
                     const OperatorFacts& facts,
                     const LayerKind& kind,
                     SubgraphId region) {
  const int64_t a = s.activation_bytes;
  switch (region) {
    case Id::AttnPre:
    case Id::MlpPre:  // the mix, the reciprocal root mean square, the three scales as one tensor
      return (s.tokens * (m.mhc_rows() + 1) + 3) * kComputingBytes;
    case Id::QUpNorm:
      return facts.q_norm_saves_output ? 0 : act_bytes(m, s, {Id::QUp, 0});
    case Id::Indexer:  // keys and gates of its compressor, both halves; frozen without a loss
      return !facts.indexer_loss ? 0 : 2 * s.tokens * 2 * m.index_head_dim * a;
    case Id::Oup:  // behind o-down, and where G5 does not rotate, before it
      return s.tokens * m.o_groups * m.o_lora_rank * a +
             (facts.rotates_in_sparse ? 0 : act_bytes(m, s, {Id::Sparse, 0}));
    case Id::SharedExpert:
      return expert_product_bytes(m, s, 1);
    case Id::Moe:
      return moe_bytes(m, s, kind);
    default:
      return 0;
  }
}

std::vector<std::string> output_holders(const OperatorFacts& facts,
                                        const LayerPlan& layer,
                                        SubgraphId region) {
  return holders_in(layer_flow(layer.kind, facts), layer, region);
}

std::vector<RegionBytes> region_bytes(const ModelConfig& model,
                                      const ActivationSizes& sizes,
                                      const OperatorFacts& facts,
                                      const LayerPlan& layer) {
  const LayerFlow flow = layer_flow(layer.kind, facts);
  std::vector<RegionBytes> rows;
  for (const SubgraphId id : restore_order(layer)) {
    if (id == Id::Layer) continue;
    RegionBytes row{.subgraph = id,
                    .inside = inside_bytes(model, sizes, facts, layer.kind, id),
                    .holders = holders_in(flow, layer, id)};
    for (const ActId out : layer.find(id)->outputs) {
      const std::vector<Event> savers = flow.find(out)->backward_readers.events();
      // The next layer saves what this one returns.
      if (savers.empty() && id != Id::MlpPost) continue;
      const bool released = layer.find(out)->keep == Keep::Release || saved_only_inside(id, savers);
      (released ? row.released : row.retained) += act_bytes(model, sizes, out);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::map<std::string, int64_t> predicted_bytes(const PlanSubject& subject,
                                               const RecomputePlan& plan,
                                               const MicroBatchShape& shape,
                                               int64_t micro_batch) {
  std::map<std::string, int64_t> predicted;
  const std::vector<StageLayer> layers = stage_layers(subject);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerPlan& layer = plan.layer(i);
    if (layer.find(Id::Layer) != nullptr) continue;
    const ActivationSizes sizes = sizes_of(subject.model, shape, layers[i].kind);
    for (const RegionBytes& region : region_bytes(subject.model, sizes, subject.operators, layer))
      predicted[fmt::format("{}.mb{}.{}",
                            layer_label(subject, layers[i].index),
                            micro_batch,
                            subgraph_name(region.subgraph))] = region.freed();
  }
  return predicted;
}

}  // namespace lethe
