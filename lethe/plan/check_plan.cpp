#include "lethe/plan/check_plan.h"

#include <algorithm>
#include <set>

#include "lethe/base/error.h"
#include "lethe/plan/check_plan_impl.h"

namespace lethe {
namespace {

/// False where the plan is about other layers: the remaining checks would only repeat that.
bool fits_stage(const PlanSubject& subject,
                const std::vector<StageLayer>& layers,
                const RecomputePlan& plan,
                std::vector<std::string>& out) {
  detail::PlanFindings found(out, "layers");
  if (plan.layer_to_class.size() != layers.size()) {
    found.add("SC0",
              "must give a class to each of {} layers, got {}; make the plan for this model",
              layers.size(),
              plan.layer_to_class.size());
    return false;
  }
  const size_t before = out.size();
  std::set<std::string_view> names;
  for (const LayerPlan& layer : plan.classes)
    if (!names.insert(layer.layer_class).second)
      found.add("SC0", "class '{}' must stand once, got it twice; join them", layer.layer_class);
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string label = layer_label(subject, layers[i].index);
    const uint16_t index = plan.layer_to_class[i];
    if (index >= plan.classes.size()) {
      found.add("SC0",
                "{} must have one of {} classes, got number {}; add the class",
                label,
                plan.classes.size(),
                index);
    } else if (plan.classes[index].kind != layers[i].kind) {
      found.add("SC0",
                "{} is {}, got a plan of {}; make the plan for this model",
                label,
                kind_name(layers[i].kind),
                kind_name(plan.classes[index].kind));
    }
  }
  return out.size() == before;
}

void check_budget(const PlanBudget& budget, std::vector<std::string>& out) {
  if (budget.predicted_peak_bytes <= budget.budget_bytes) return;
  detail::PlanFindings(out, "budget")
      .add("SC16",
           "the predicted peak must be <= {} bytes, got {}; recompute more or raise the budget",
           budget.budget_bytes,
           budget.predicted_peak_bytes);
}

}  // namespace

std::vector<std::string> plan_problems(const PlanSubject& subject,
                                       const RecomputePlan& plan,
                                       const std::optional<PlanBudget>& budget) {
  std::vector<std::string> out;
  const std::vector<StageLayer> layers = stage_layers(subject);
  if (!fits_stage(subject, layers, plan, out)) return out;
  for (const LayerPlan& layer : plan.classes) {
    const LayerFlow flow = layer_flow(layer.kind, subject.operators);
    const detail::CheckedClass checked{plan, layer, flow};
    detail::PlanFindings found(out, layer.layer_class);
    const size_t before = out.size();
    detail::check_shape(checked, found);
    if (out.size() > before) continue;
    detail::check_activations(checked, found);
    detail::check_regions(checked, found);
  }
  // What a layer hands to the next is only worth looking at where every layer is sound.
  if (out.empty()) detail::check_stage(subject, layers, plan, out);
  if (budget) check_budget(*budget, out);
  return out;
}

void check_plan(const PlanSubject& subject,
                const RecomputePlan& plan,
                const std::optional<PlanBudget>& budget) {
  const std::vector<std::string> problems = plan_problems(subject, plan, budget);
  if (problems.empty()) return;
  std::string text = problems.front();
  if (problems.size() > 1) {
    text = fmt::format("{} violations of the recompute plan:", problems.size());
    for (const std::string& problem : problems) text += "\n  " + problem;
  }
  throw RecomputeError(text);
}

std::vector<std::string> plan_notes(const PlanSubject& subject, const RecomputePlan& plan) {
  std::vector<std::string> out;
  for (const LayerPlan& layer : plan.classes) {
    detail::PlanFindings found(out, layer.layer_class);
    const LayerFlow flow = layer_flow(layer.kind, subject.operators);
    for (const ActRule& rule : layer.acts) {
      const Activation* act = flow.find(rule.id);
      if (act == nullptr || rule.keep != Keep::Release || rule.release <= act->last_read())
        continue;
      found.add("SC15",
                "'{}' is released at {}, later than its last read at {}; move the release there",
                rule.name,
                event_name(rule.release),
                event_name(act->last_read()));
    }
    if (layer.find(SubgraphId::Oup) != nullptr)
      for (const Exclusion& one : flow.exclusions)
        found.add("SC11", "'{}' is no region: {}", subgraph_name(one.subgraph), one.reason);
    for (const RegionRule& region : layer.regions) {
      const auto saved = [&](ActId id) { return !flow.find(id)->backward_readers.empty(); };
      if (region.outputs.empty() ||
          std::any_of(region.outputs.begin(), region.outputs.end(), saved))
        continue;
      if (subgraph_info(region.subgraph).mechanism != Mechanism::WithoutOutput) continue;
      found.add("free",
                "region '{}' frees nothing: no node saves its output",
                subgraph_name(region.subgraph));
    }
  }
  return out;
}

std::vector<std::string> step_problems(const StepCount& step) {
  std::vector<std::string> out;
  const auto add = [&out](const char* check, const std::string& rest) {
    out.push_back(fmt::format("recompute step [{}]: {}", check, rest));
  };
  for (const RegionCount& region : step.regions) {
    const int64_t wanted = region.had_backward ? 1 : 0;
    if (region.replays != wanted)
      add("DC3",
          fmt::format(
              "{} must be replayed {} times, got {}; a saved tensor was read twice or never",
              region.id,
              wanted,
              region.replays));
    if (region.released_bytes != region.predicted_bytes)
      add("DC5",
          fmt::format("{} must release {} bytes as predicted, got {}; see who holds its output",
                      region.id,
                      region.predicted_bytes,
                      region.released_bytes));
    if (region.kept_bytes != region.predicted_kept_bytes)
      add("DC5",
          fmt::format("{} must keep {} bytes for its save units as predicted, got {}; see which of "
                      "their calls it makes",
                      region.id,
                      region.predicted_kept_bytes,
                      region.kept_bytes));
  }
  const std::pair<const char*, int64_t> left[] = {{"live regions", step.live_regions},
                                                  {"released storages", step.released_storages},
                                                  {"swap entries", step.swap_entries}};
  for (const auto& [what, count] : left)
    if (count != 0)
      add("DC4",
          fmt::format("no {} may be left at the end of a step, got {}; a forward had no backward",
                      what,
                      count));
  return out;
}

}  // namespace lethe
