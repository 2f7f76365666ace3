#include <algorithm>
#include <set>

#include "lethe/plan/check_plan_impl.h"

namespace lethe::detail {
namespace {

using Kind = Trigger::Kind;

bool makes(const RegionRule& region, ActId id) {
  return std::find(region.outputs.begin(), region.outputs.end(), id) != region.outputs.end();
}

/// The enabled finer region that makes the activation; nullptr where there is none.
const RegionRule* maker_of(const LayerPlan& layer, ActId id) {
  for (const RegionRule& region : layer.regions)
    if (region.subgraph != SubgraphId::Layer && makes(region, id)) return &region;
  return nullptr;
}

class ActCheck {
 public:
  ActCheck(const CheckedClass& c, const ActRule& rule, PlanFindings& found)
      : c_(c), rule_(rule), act_(*c.flow.find(rule.id)), found_(found) {}

  void run() {
    if (act_.is_choice && rule_.keep != Keep::Keep)
      found_.add("R6.25",
                 "'{}' is a choice of experts or slots and must be kept: a replay might choose "
                 "otherwise; keep it",
                 rule_.name);
    if (rule_.keep == Keep::Full && c_.layer.find(SubgraphId::Layer) == nullptr)
      found_.add(
          "SC5",
          "'{}' is left to a region around the layer, which is not enabled; enable 'layer' or "
          "keep the activation",
          rule_.name);
    if (rule_.keep != Keep::Release) return;
    check_release();
    check_aliases();
    check_hook();
    check_maker();
    check_overlap();
  }

 private:
  void check_release() {
    if (rule_.release == Event::Never || rule_.release < rule_.last_read) {
      found_.add("SC1",
                 "'{}' is released at {} but still read until {}; move the release or keep the "
                 "activation",
                 rule_.name,
                 event_name(rule_.release),
                 event_name(rule_.last_read));
    } else if (rule_.release < act_.last_read()) {
      found_.add("SC2",
                 "'{}' is released at {}, but {} reads it in forward; move the release there",
                 rule_.name,
                 event_name(rule_.release),
                 event_name(act_.last_read()));
    }
  }

  void check_aliases() {
    if (act_.alias_group == 0) return;
    for (const Activation& other : c_.flow.acts) {
      if (other.alias_group != act_.alias_group || other.id == act_.id) continue;
      const ActRule& rule = *c_.layer.find(other.id);
      if (rule.keep == rule_.keep && rule.release == rule_.release) continue;
      found_.add(
          "SC3",
          "'{}' and '{}' may share one storage and must be released together, got {} and {}; "
          "release both at the later event or keep both",
          rule_.name,
          rule.name,
          event_name(rule_.release),
          rule.keep == Keep::Release ? event_name(rule.release) : "kept");
    }
  }

  void check_hook() {
    if (c_.plan.mode != RecomputeMode::Reentrant || rule_.restore.kind == Kind::Explicit) return;
    const Event at = rule_.restore.at;
    if (rule_.restore.kind == Kind::Pull || !is_layer_event(at) || at == Event::AttnIndexerEnd) {
      found_.add("SC4",
                 "'{}' must be restored by the gradient of a tensor that has one, got {}; give an "
                 "event behind its readers",
                 rule_.name,
                 rule_.restore.kind == Kind::Pull ? "pull" : event_name(at));
      return;
    }
    for (const Event reader : act_.backward_readers.events()) {
      if (nodes_before(at).has(reader)) continue;
      found_.add("SC4",
                 "'{}' is restored by the gradient of {}, but the backward of {} reads it before; "
                 "give a later event or mode engine",
                 rule_.name,
                 event_name(at),
                 node_name(reader));
    }
  }

  void check_maker() {
    if (act_.owner == Owner::Comm || act_.id.subgraph == SubgraphId::LayerInput) {
      found_.add("SC6",
                 "'{}' {} and must not be released here; keep it",
                 rule_.name,
                 act_.owner == Owner::Comm ? "is a buffer of a collective"
                                           : "belongs to the layer before");
    } else if (!is_made()) {
      found_.add("SC5",
                 "'{}' is released, but no enabled region makes it; enable one or keep the "
                 "activation",
                 rule_.name);
    }
  }

  /// By a region, itself or as another name of the same storage.
  [[nodiscard]] bool is_made() const {
    return std::any_of(c_.flow.acts.begin(), c_.flow.acts.end(), [this](const Activation& other) {
      const bool same =
          other.id == act_.id || (act_.alias_group != 0 && other.alias_group == act_.alias_group);
      return same && maker_of(c_.layer, other.id) != nullptr;
    });
  }

  void check_overlap() {
    if (rule_.restore_overlap.kind != Kind::OnGradOf) return;
    const Event first_reader = act_.backward_readers.last();  // of backward
    const bool crosses = cut_group(act_.made) != cut_group(first_reader);
    const std::string_view hook = cut_group(rule_.restore_overlap.at);
    if (!crosses || hook == cut_group(first_reader)) return;
    found_.add("SC12",
               "'{}' is read in the part '{}' of the overlap path, got a hook in the part '{}', "
               "whose graph is another; use pull or explicit",
               rule_.name,
               cut_group(first_reader),
               hook);
  }

  const CheckedClass& c_;
  const ActRule& rule_;
  const Activation& act_;
  PlanFindings& found_;
};

void check_region_flags(const RegionRule& rule, const RegionShape& shape, PlanFindings& found) {
  const std::string_view name = subgraph_name(rule.subgraph);
  if (shape.has_collective && (!rule.has_collective || rule.stop == ReplayStop::On))
    found.add("SC7",
              "region '{}' has a collective and must say so and stop early off or after it, got "
              "has_collective = {}, stop = {}; ranks would wait for each other",
              name,
              rule.has_collective,
              rule.stop == ReplayStop::On ? "on" : "given");
  if (shape.has_rng && !rule.has_rng)
    found.add("SC8",
              "region '{}' draws random numbers and must have has_rng, got false; a replay would "
              "draw others",
              name);
}

/// Inputs of a replayed region that come back by their own hooks must come back first.
void check_hook_order(const CheckedClass& c, const RegionRule& rule, PlanFindings& found) {
  if (c.plan.mode != RecomputeMode::Reentrant) return;
  Event latest = Event::Never;
  for (const ActId id : rule.outputs)
    if (const ActRule& out = *c.layer.find(id); out.keep == Keep::Release)
      latest = std::max(latest, out.restore.at);
  for (const ActId id : rule.inputs) {
    const ActRule& in = *c.layer.find(id);
    if (in.keep != Keep::Release || in.restore.at >= latest) continue;
    found.add("SC5",
              "region '{}' is restored at the gradient of {}, before its input '{}' at {}; restore "
              "the input no later",
              subgraph_name(rule.subgraph),
              event_name(latest),
              in.name,
              event_name(in.restore.at));
  }
}

void check_exclusive(const LayerPlan& layer, PlanFindings& found) {
  using Id = SubgraphId;
  const auto has = [&layer](Id id) { return layer.find(id) != nullptr; };
  if (has(Id::Layer) && layer.regions.size() > 1 && !layer.nested)
    found.add("SC9",
              "the whole layer and {} finer regions must not both be recomputed, got both; choose "
              "one, or give nested = true in a plan file",
              layer.regions.size() - 1);
  const std::pair<Id, Id> pairs[] = {
      {Id::QUpNorm, Id::QUp}, {Id::QUpNorm, Id::QNorm}, {Id::Moe, Id::SharedExpert}};
  for (const auto& [outer, inner] : pairs) {
    if (!has(outer) || !has(inner) || (layer.nested && outer == Id::Moe)) continue;
    found.add("SC9",
              "region '{}' contains '{}', got both; disable one of them",
              subgraph_name(outer),
              subgraph_name(inner));
  }
}

}  // namespace

void check_shape(const CheckedClass& c, PlanFindings& found) {
  std::set<ActId> seen;
  for (const ActRule& rule : c.layer.acts) {
    const Activation* act = c.flow.find(rule.id);
    if (act == nullptr || act->name != rule.name || !seen.insert(rule.id).second) {
      found.add("SC0",
                "'{}' ({}) must be an activation of this layer, once, got {}; make the plan anew",
                rule.name,
                act_text(rule.id),
                act == nullptr ? "none" : act->name);
      continue;
    }
    if (rule.keep == Keep::Swap && rule.id.subgraph != SubgraphId::LayerInput)
      found.add("SC0", "only 'x_in' may be swapped, got '{}'; keep or release it", rule.name);
  }
  for (const Activation& act : c.flow.acts)
    if (!seen.contains(act.id))
      found.add("SC0", "must have a rule for '{}', got none; add it", act.name);
  std::set<SubgraphId> regions;
  for (const RegionRule& region : c.layer.regions)
    if (!regions.insert(region.subgraph).second)
      found.add("SC0",
                "region '{}' must stand once, got it twice; leave one out",
                subgraph_name(region.subgraph));
  if (!c.layer.save_units.empty() && c.layer.find(SubgraphId::Layer) == nullptr)
    found.add("SC0",
              "save units need the region 'layer', got none; enable it or leave the units out");
  for (const std::string& unit : c.layer.allow_mutation)
    if (std::find(c.layer.save_units.begin(), c.layer.save_units.end(), unit) ==
        c.layer.save_units.end())
      found.add("SC0",
                "allow_mutation must name save units of the class, got '{}'; keep it or leave it "
                "out",
                unit);
}

void check_activations(const CheckedClass& c, PlanFindings& found) {
  for (const ActRule& rule : c.layer.acts) ActCheck(c, rule, found).run();
}

void check_regions(const CheckedClass& c, PlanFindings& found) {
  for (const RegionRule& rule : c.layer.regions) {
    const RegionShape* shape = c.flow.find(rule.subgraph);
    if (shape == nullptr) {
      const auto reason =
          std::find_if(c.flow.exclusions.begin(), c.flow.exclusions.end(), [&](const auto& one) {
            return one.subgraph == rule.subgraph;
          });
      found.add("SC11",
                "region '{}' is enabled, but {}; disable it",
                subgraph_name(rule.subgraph),
                reason == c.flow.exclusions.end() ? "the layer has no such part" : reason->reason);
      continue;
    }
    if (rule.inputs != shape->inputs || rule.outputs != shape->outputs) {
      found.add(
          "SC5",
          "region '{}' must list the {} inputs and {} outputs of its sub-graph, got {} and {}; "
          "a replay needs every tensor that decides its result",
          subgraph_name(rule.subgraph),
          shape->inputs.size(),
          shape->outputs.size(),
          rule.inputs.size(),
          rule.outputs.size());
      continue;
    }
    check_region_flags(rule, *shape, found);
    check_hook_order(c, rule, found);
  }
  check_exclusive(c.layer, found);
}

}  // namespace lethe::detail
