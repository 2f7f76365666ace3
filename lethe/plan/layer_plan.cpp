#include "lethe/plan/layer_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/ranges.h>

namespace lethe {
namespace {

using E = Event;
using Id = SubgraphId;

constexpr Trigger on_grad_of(Event at) {
  return {Trigger::Kind::OnGradOf, at};
}

class PlanMaker {
 public:
  PlanMaker(const LayerKind& kind, const OperatorFacts& facts, const LayerChoice& choice)
      : choice_(choice), flow_(layer_flow(kind, facts)) {
    plan_.layer_class = kind_name(kind) + " " + choice.text();
    plan_.kind = kind;
    plan_.nested = choice.nested;
    plan_.save_units = choice.save_units;
    plan_.allow_mutation = choice.allow_mutation;
  }

  LayerPlan make() {
    for (const RegionShape& shape : flow_.regions)
      if (enabled(shape.subgraph)) add_region(shape);
    for (const Activation& act : flow_.acts) add_act(act);
    std::set<uint8_t> groups;
    for (const Activation& act : flow_.acts)
      if (act.alias_group != 0) groups.insert(act.alias_group);
    for (const uint8_t group : groups) release_together(group);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool enabled(Id id) const {
    const bool fine = !choice_.full || choice_.nested;
    return id == Id::Layer ? choice_.full : fine && enabled_inside(id);
  }

  [[nodiscard]] bool enabled_inside(Id id) const {
    const EnabledParts& on = choice_.parts;
    switch (id) {
      case Id::AttnPre:
      case Id::AttnPost:
      case Id::MlpPre:
        return on.mhc;
      case Id::MlpPost:
        return on.mhc && choice_.inner_of_block;
      case Id::AttnNorm:
      case Id::MlpNorm:
        return choice_.layer_norms;
      case Id::QUp:
        return on.csa && !on.q_norm && !choice_.q_up;
      case Id::QUpNorm:
        return (on.csa && on.q_norm) || choice_.q_up;
      case Id::QNorm:
        return on.q_norm && !on.csa && !choice_.q_up;
      case Id::Indexer:
      case Id::CompressCast:
      case Id::Oup:
        return on.csa;
      case Id::Sparse:
        return on.csa || choice_.core_attention;
      case Id::AttnBda:
        return on.defer();
      case Id::Moe:
        return choice_.moe;
      case Id::SharedExpert:
        return choice_.shared_expert;
      default:
        return false;
    }
  }

  void add_region(const RegionShape& shape) {
    RegionRule& rule = plan_.regions.emplace_back();
    rule.subgraph = shape.subgraph;
    rule.inputs = shape.inputs;
    rule.outputs = shape.outputs;
    rule.has_collective = shape.has_collective;
    rule.has_rng = shape.has_rng;
    if (shape.has_collective) rule.stop = ReplayStop::AfterLastCollective;
  }

  void add_act(const Activation& act) {
    ActRule& rule = plan_.acts.emplace_back();
    rule.name = act.name;
    rule.id = act.id;
    rule.last_read = act.last_read();
    rule.keep = keep(act);
    if (rule.keep != Keep::Release) return;
    rule.release = rule.last_read;
    // No trigger for an output that the next layer restores by its own pull.
    if (act.id.subgraph == Id::MlpPost) return;
    rule.restore = on_grad_of(prefetch_event(act));
    rule.restore_overlap = overlap_trigger(act, rule.restore);
  }

  /// Activations that share a storage are released together, at the latest release of the group.
  void release_together(uint8_t group) {
    std::vector<ActRule*> members;
    Event latest = Event::Never;
    for (size_t i = 0; i < plan_.acts.size(); ++i) {
      if (flow_.acts[i].alias_group != group) continue;
      members.push_back(&plan_.acts[i]);
      latest = std::max(latest, plan_.acts[i].last_read);
    }
    const auto released = std::find_if(members.begin(), members.end(), [](const ActRule* rule) {
      return rule->keep == Keep::Release;
    });
    if (released == members.end()) return;
    const Trigger restore = (*released)->restore, overlap = (*released)->restore_overlap;
    for (ActRule* rule : members) {
      if (rule->keep != Keep::Release) rule->restore = restore, rule->restore_overlap = overlap;
      rule->keep = Keep::Release;
      rule->release = latest;
    }
  }

  [[nodiscard]] Keep keep(const Activation& act) const {
    if (act.is_choice) return Keep::Keep;
    if (choice_.swap_input && act.id.subgraph == Id::LayerInput) return Keep::Swap;
    if (choice_.full && !choice_.nested) {
      if (act.id.subgraph == Id::LayerInput) return choice_.chunk_begins ? Keep::Keep : Keep::Full;
      if (act.id.subgraph == Id::MlpPost) return choice_.chunk_ends ? Keep::Keep : Keep::Full;
      return Keep::Full;
    }
    return is_released(act.id) ? Keep::Release : Keep::Keep;
  }

  [[nodiscard]] bool is_released(ActId id) const {
    const auto maker =
        std::find_if(plan_.regions.begin(), plan_.regions.end(), [&](const RegionRule& region) {
          return region.subgraph != Id::Layer &&
                 std::find(region.outputs.begin(), region.outputs.end(), id) !=
                     region.outputs.end();
        });
    if (maker == plan_.regions.end()) return false;
    switch (maker->subgraph) {
      case Id::Sparse:
        return choice_.parts.csa;
      case Id::Oup:
        return choice_.attn_keep != AttnKeep::AttnOut && !choice_.inner_of_block;
      case Id::AttnPost:
        return choice_.attn_keep != AttnKeep::Stream;
      default:
        return subgraph_info(maker->subgraph).mechanism == Mechanism::WithoutOutput;
    }
  }

  /// The tensor whose gradient says that the output of this sub-graph is wanted soon (spec 3 4.6).
  [[nodiscard]] Event prefetch_event(const Activation& act) const {
    const bool y_returns = choice_.parts.mhc && choice_.attn_keep != AttnKeep::Stream;
    const Event half = y_returns ? E::MlpPostEnd : E::AttnPostEnd;
    switch (act.id.subgraph) {
      case Id::AttnPre:
      case Id::AttnBda:
        return half;
      case Id::AttnNorm:
        return E::AttnBdaEnd;
      case Id::QUp:
        return E::AttnQEnd;
      case Id::CompressCast:
        return E::AttnCompressEnd;
      case Id::QNorm:
      case Id::Sparse:
        return choice_.parts.csa ? attention_event(half) : act.backward_readers.last();
      case Id::Oup:
        return half;
      case Id::MlpNorm:
        return E::MlpCombineEnd;
      default:
        return E::MlpPostEnd;
    }
  }

  /// Of q and o: with attn_out they are wanted, and where that is kept, not before its gradient.
  [[nodiscard]] Event attention_event(Event half) const {
    const bool out_kept = choice_.attn_keep == AttnKeep::AttnOut || choice_.inner_of_block;
    return out_kept ? E::AttnOupEnd : half;
  }

  /// In the overlap path a hook fires in its own graph only: what is read in another one is
  /// restored by the scheduler, unless the hook is in the graph of the first reader of backward.
  [[nodiscard]] Trigger overlap_trigger(const Activation& act, const Trigger& plain) const {
    if (act.id.subgraph == Id::AttnNorm && choice_.parts.defer()) return on_grad_of(E::MlpPostEnd);
    const Event reader = act.backward_readers.last();
    const bool crosses = cut_group(act.made) != cut_group(reader);
    if (!crosses || cut_group(plain.at) == cut_group(reader)) return plain;
    return {Trigger::Kind::Explicit, reader};
  }

  LayerChoice choice_;
  LayerFlow flow_;
  LayerPlan plan_;
};

}  // namespace

EnabledParts enabled_parts(const RecomputeConfig& config,
                           bool is_mtp,
                           bool norm_selected,
                           const RunPhase& phase) {
  const bool main_or_mtp = !is_mtp || config.mtp == MtpSelection::Include;
  const bool active = main_or_mtp && phase.training && phase.grad_enabled;
  return {.csa = active && config.csa_attention,
          .q_norm = active && recomputes_norms(config) && norm_selected,
          .mhc = active && recomputes_mhc(config)};
}

std::string LayerChoice::text() const {
  std::vector<std::string> words;
  const auto say = [&words](bool on, const char* word) {
    if (on) words.emplace_back(word);
  };
  say(full, "full");
  say(parts.csa, "csa");
  say(parts.q_norm, "q_norm");
  say(layer_norms, "norm");
  say(parts.mhc, "mhc");
  say(core_attention, "core_attn");
  say(q_up, "mla_up_proj");
  say(moe, "moe");
  say(shared_expert, "shared_experts");
  say(swap_input, "swap");
  if (words.empty()) return "plain";
  std::string text = fmt::format("{}", fmt::join(words, "+"));
  if (attn_keep == AttnKeep::AttnOut) text += " keep=attn_out";
  if (attn_keep == AttnKeep::Stream) text += " keep=y_mid";
  if (inner_of_block) text += " inner";
  if (nested) text += " nested";
  if (!chunk_begins) text += " goes_on";
  if (!chunk_ends) text += " open";
  if (!save_units.empty()) text += fmt::format(" save={}", fmt::join(save_units, ","));
  if (!allow_mutation.empty())
    text += fmt::format(" allow_mutation={}", fmt::join(allow_mutation, ","));
  return text;
}

LayerPlan make_layer_plan(const LayerKind& kind,
                          const OperatorFacts& facts,
                          const LayerChoice& choice) {
  return PlanMaker(kind, facts, choice).make();
}

}  // namespace lethe
