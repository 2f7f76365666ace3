#include "lethe/plan/layer_flow.h"

#include <algorithm>

#include <fmt/format.h>

#include "lethe/config/model_config.h"

namespace lethe {
namespace {

using E = Event;
using Id = SubgraphId;

constexpr uint8_t kCastGroup = 1;  // of normed_attn and x32
constexpr size_t kMaxActs = 64;

class FlowMaker {
 public:
  FlowMaker(const LayerKind& kind, const OperatorFacts& facts) : kind_(kind), facts_(facts) {
    flow_.acts.reserve(kMaxActs);  // references to acts stay valid
  }

  LayerFlow make() {
    add_query();
    add_keys();
    add_attention();
    add_mlp();
    add_regions();
    return std::move(flow_);
  }

 private:
  [[nodiscard]] bool has_slots() const { return kind_.ratio > 0; }

  [[nodiscard]] bool has_loss() const { return kind_.has_indexer() && facts_.indexer_loss; }

  [[nodiscard]] bool has_bda() const { return facts_.attention_bias || facts_.hidden_dropout; }

  Activation& act(std::string_view name, ActId id, EventSet forward, EventSet backward) {
    Activation& added = flow_.acts.emplace_back();
    added.name = name;
    added.id = id;
    added.made = subgraph_info(id.subgraph).last;
    added.forward_readers = forward;
    added.backward_readers = backward;
    return added;
  }

  void add_query() {
    act("x_in",
        {Id::LayerInput, 0},
        {E::AttnPreEnd, E::AttnPostEnd},
        {E::AttnPreEnd, E::AttnPostEnd})
        .owner = Owner::Tape;
    act("y_attn", {Id::AttnPre, 0}, {E::AttnNormEnd}, {E::AttnNormEnd}).owner = Owner::Local;
    for (const uint8_t out : {uint8_t{1}, uint8_t{2}})
      act(out == 1 ? "post_attn" : "comb_attn",
          {Id::AttnPre, out},
          {E::AttnPostEnd},
          {E::AttnPostEnd})
          .owner = Owner::Local;
    Activation& normed = act("normed_attn", {Id::AttnNorm, 0}, {E::AttnQEnd}, {E::AttnQEnd});
    for (EventSet* readers : {&normed.forward_readers, &normed.backward_readers}) {
      if (kind_.has_indexer()) readers->add(E::AttnIndexerEnd);
      if (has_slots()) readers->add(E::AttnCompressEnd);
    }
    Activation& compressed = act("q_compressed", {Id::QDown, 0}, {E::AttnQEnd}, {E::AttnQEnd});
    if (kind_.has_indexer()) {
      compressed.forward_readers.add(E::AttnIndexerEnd);
      compressed.backward_readers.add(E::AttnIndexerEnd);
    }
    Activation& q_up = act("q_up", {Id::QUp, 0}, {E::AttnQEnd}, {});
    if (!facts_.q_norm_saves_output) q_up.backward_readers.add(E::AttnQEnd);
    Activation& q = attention_input("q", {Id::QNorm, 0});
    if (facts_.q_norm_saves_output) q.backward_readers.add(E::AttnQEnd);
  }

  /// Read by sparse attention, and by the node of the indexer's loss where there is one.
  Activation& attention_input(std::string_view name, ActId id) {
    Activation& added = act(name, id, {E::AttnSparseEnd}, {E::AttnSparseEnd});
    if (!has_loss()) return added;
    added.forward_readers.add(E::AttnOupEnd);
    added.backward_readers.add(E::AttnOupEnd);
    return added;
  }

  void add_keys() {
    attention_input("kv", {Id::Kv, 0});
    if (kind_.has_indexer()) {
      attention_input("topk_idx", {Id::Indexer, 0}).is_choice = true;
      const std::string_view names[] = {"index_q", "index_k", "index_w"};
      for (uint8_t i = 0; i < 3; ++i) {
        const EventSet readers = has_loss() ? EventSet{E::AttnOupEnd} : EventSet{};
        act(names[i], {Id::Indexer, static_cast<uint8_t>(i + 1)}, readers, readers);
      }
    }
    if (!has_slots()) return;
    add_cast();
    attention_input("kv_compress", {Id::Compressor, 0});
  }

  void add_cast() {
    const auto exclude = [this](const char* reason) {
      flow_.exclusions.push_back({Id::CompressCast, reason});
    };
    if (facts_.fp8_compressor) return exclude("the compressor computes in FP8");
    if (facts_.varlen_compressor) return exclude("the compressor reads packed documents");
    if (!facts_.compressor_casts) return exclude("the fused compressor casts nothing");
    Activation& cast =
        act("x32", {Id::CompressCast, 0}, {E::AttnCompressEnd}, {E::AttnCompressEnd});
    if (!facts_.fp32_activations) return;
    exclude("the cast of an fp32 activation returns its input");
    cast.alias_group = kCastGroup;
    for (Activation& other : flow_.acts)
      if (other.id == ActId{Id::AttnNorm, 0}) other.alias_group = kCastGroup;
  }

  void add_attention() {
    act("o", {Id::Sparse, 0}, {E::AttnOupEnd}, {E::AttnSparseEnd, E::AttnOupEnd});
    Activation& lse = act("lse", {Id::Sparse, 1}, {}, {E::AttnSparseEnd});
    if (has_loss() && facts_.loss_reads_mass) {
      lse.forward_readers.add(E::AttnOupEnd);
      lse.backward_readers.add(E::AttnOupEnd);
      act("slot_mass", {Id::Sparse, 2}, {E::AttnOupEnd}, {E::AttnOupEnd});
    }
    if (has_bda()) {
      act("attn_out", {Id::Oup, 0}, {E::AttnBdaEnd}, {});
      act("h_bda", {Id::AttnBda, 0}, {E::AttnPostEnd}, {E::AttnPostEnd});
    } else {
      // Bias-dropout-add returns its input: one storage, so one activation.
      act("attn_out", {Id::Oup, 0}, {E::AttnBdaEnd, E::AttnPostEnd}, {E::AttnPostEnd});
      flow_.exclusions.push_back({Id::AttnBda, "without bias and dropout it returns its input"});
    }
    act("y_mid", {Id::AttnPost, 0}, {E::MlpPreEnd, E::MlpPostEnd}, {E::MlpPreEnd, E::MlpPostEnd})
        .owner = Owner::Tape;
  }

  void add_mlp() {
    act("y_mlp", {Id::MlpPre, 0}, {E::MlpNormEnd}, {E::MlpNormEnd}).owner = Owner::Local;
    for (const uint8_t out : {uint8_t{1}, uint8_t{2}})
      act(out == 1 ? "post_mlp" : "comb_mlp", {Id::MlpPre, out}, {E::MlpPostEnd}, {E::MlpPostEnd})
          .owner = Owner::Local;
    Activation& normed = act("normed_mlp",
                             {Id::MlpNorm, 0},
                             {E::MlpRouterEnd, E::MlpExpertsEnd},
                             {E::MlpRouterEnd, E::MlpExpertsEnd});
    Activation& routing = act("routing",
                              {Id::Router, 0},
                              {E::MlpDispatchEnd, E::MlpExpertsEnd, E::MlpCombineEnd},
                              {E::MlpRouterEnd, E::MlpExpertsEnd});
    routing.is_choice = true;
    routing.owner = Owner::Tape;
    if (facts_.expert_parallel) {
      normed.forward_readers.add(E::MlpDispatchEnd);
      act("dispatched", {Id::Dispatch, 0}, {E::MlpExpertsEnd}, {E::MlpExpertsEnd}).owner =
          Owner::Comm;
    }
    act("mlp_out", {Id::Moe, 0}, {E::MlpPostEnd}, {E::MlpPostEnd});
    act("out", {Id::MlpPost, 0}, {}, {}).owner = Owner::Tape;
  }

  void region(Id id, std::vector<ActId> inputs, std::vector<ActId> outputs) {
    std::erase_if(inputs, [this](ActId one) { return flow_.find(one) == nullptr; });
    std::erase_if(outputs, [this](ActId one) { return flow_.find(one) == nullptr; });
    flow_.regions.push_back({id, std::move(inputs), std::move(outputs)});
  }

  void add_regions() {
    const ActId x{Id::LayerInput, 0}, normed{Id::AttnNorm, 0}, q{Id::QNorm, 0}, y{Id::AttnPost, 0};
    region(Id::AttnPre, {x}, {{Id::AttnPre, 0}, {Id::AttnPre, 1}, {Id::AttnPre, 2}});
    region(Id::AttnNorm, {{Id::AttnPre, 0}}, {normed});
    region(Id::QUp, {{Id::QDown, 0}}, {{Id::QUp, 0}});
    region(Id::QUpNorm, {{Id::QDown, 0}}, {q});
    region(Id::QNorm, {{Id::QUp, 0}}, {q});
    if (kind_.has_indexer())
      region(Id::Indexer,
             {normed, {Id::QDown, 0}},
             {{Id::Indexer, 0}, {Id::Indexer, 1}, {Id::Indexer, 2}, {Id::Indexer, 3}});
    if (flow_.find(ActId{Id::CompressCast, 0}) && !facts_.fp32_activations)
      region(Id::CompressCast, {normed}, {{Id::CompressCast, 0}});
    region(Id::Sparse,
           {q, {Id::Kv, 0}, {Id::Compressor, 0}, {Id::Indexer, 0}},
           {{Id::Sparse, 0}, {Id::Sparse, 1}, {Id::Sparse, 2}});
    region(Id::Oup, {{Id::Sparse, 0}}, {{Id::Oup, 0}});
    if (has_bda()) {
      region(Id::AttnBda, {{Id::Oup, 0}}, {{Id::AttnBda, 0}});
      flow_.regions.back().has_rng = facts_.hidden_dropout;
    }
    const ActId from_attention{has_bda() ? Id::AttnBda : Id::Oup, 0};
    region(Id::AttnPost, {from_attention, x, {Id::AttnPre, 1}, {Id::AttnPre, 2}}, {y});
    region(Id::MlpPre, {y}, {{Id::MlpPre, 0}, {Id::MlpPre, 1}, {Id::MlpPre, 2}});
    region(Id::MlpNorm, {{Id::MlpPre, 0}}, {{Id::MlpNorm, 0}});
    region(Id::Moe, {{Id::MlpNorm, 0}}, {{Id::Moe, 0}});
    flow_.regions.back().has_collective = facts_.expert_parallel;
    region(Id::SharedExpert, {{Id::MlpNorm, 0}}, {});
    region(Id::MlpPost, {{Id::Moe, 0}, y, {Id::MlpPre, 1}, {Id::MlpPre, 2}}, {{Id::MlpPost, 0}});
    region(Id::Layer, {x}, {{Id::MlpPost, 0}});
    flow_.regions.back().has_collective = facts_.expert_parallel;
    flow_.regions.back().has_rng = facts_.hidden_dropout;
  }

  LayerKind kind_;
  OperatorFacts facts_;
  LayerFlow flow_;
};

}  // namespace

bool LayerKind::has_indexer() const {
  return ratio == kCsaRatio;
}

std::string kind_name(const LayerKind& kind) {
  const std::string attention = kind.ratio == 0 ? "window" : fmt::format("ratio{}", kind.ratio);
  return fmt::format("{}/{}{}", kind.mtp ? "mtp" : "main", attention, kind.hash ? "/hash" : "");
}

Event Activation::last_read() const {
  return forward_readers.empty() ? made : forward_readers.last();
}

const Activation* LayerFlow::find(ActId id) const {
  const auto found =
      std::find_if(acts.begin(), acts.end(), [&](const auto& a) { return a.id == id; });
  return found == acts.end() ? nullptr : &*found;
}

const RegionShape* LayerFlow::find(SubgraphId id) const {
  const auto found = std::find_if(
      regions.begin(), regions.end(), [&](const auto& region) { return region.subgraph == id; });
  return found == regions.end() ? nullptr : &*found;
}

LayerFlow layer_flow(const LayerKind& kind, const OperatorFacts& facts) {
  return FlowMaker(kind, facts).make();
}

}  // namespace lethe
