#include "lethe/recompute/layer_tape.h"

#include <algorithm>

#include <fmt/format.h>

#include "lethe/recompute/region_trace_impl.h"

namespace lethe {
namespace {

EarlyStop early_stop(ReplayStop stop) {
  switch (stop) {
    case ReplayStop::Off:
      return EarlyStop::Off;
    case ReplayStop::AfterLastCollective:
      return EarlyStop::AfterMark;
    default:
      return EarlyStop::On;
  }
}

// Full: inside a chunk of whole layers, whose inner borders are given back too.
bool gives_back(const LayerPlan& plan, const RegionRule& region) {
  return std::any_of(region.outputs.begin(), region.outputs.end(), [&](ActId id) {
    const ActRule* act = plan.find(id);
    return act != nullptr && (act->keep == Keep::Release || act->keep == Keep::Full);
  });
}

}  // namespace

LayerTape::LayerTape(const RecomputePass& pass, LayerFacts facts)
    : LayerTape(std::move(facts.label)) {
  const LayerPlan& plan = pass.plan->layer(facts.index);
  if (pass.swaps()) {
    swap_ = pass.swap;
    input_layer_ = static_cast<int64_t>(pass.plan->input_source(facts.index));
    offers_ = plan.swaps_input();
  }
  if (!pass.recomputes() || plan.regions.empty()) return;
  tape_ = pass.tape;
  plan_ = &plan;
  checked_ = pass.plan->checks != PlanChecks::Off;
  prefix_ = fmt::format("{}.mb{}.", label_, pass.micro_batch);
  constants_ = std::move(facts.constants);
  for (const SaveTarget& target : targets_of(*facts.save_targets, plan.save_units)) {
    const auto& writable = plan.allow_mutation;
    const bool may_change =
        std::find(writable.begin(), writable.end(), save_unit_name(target.unit)) != writable.end();
    for (const std::string& name : target.names)
      kept_.push_back({.name = name, .allow_mutation = may_change});
  }
}

std::string LayerTape::region_name(SubgraphId id) const {
  return prefix_ + std::string(subgraph_name(id));
}

bool LayerTape::has(SubgraphId id) const {
  return plan_ != nullptr && plan_->find(id) != nullptr;
}

Tensors LayerTape::run(SubgraphId id, const RegionFn& fn, const Tensors& inputs) const {
  const RegionRule* rule = plan_ == nullptr ? nullptr : plan_->find(id);
  if (rule == nullptr) return fn(inputs);
  Tensors all = inputs;
  all.insert(all.end(), constants_.begin(), constants_.end());
  // By the scope of the thread: in a replay of an outer region the tape may be gone.
  return run_region({.name = region_name(id),
                     .release_outputs = gives_back(*plan_, *rule),
                     .random = rule->has_rng,
                     .stop = early_stop(rule->stop),
                     .keep = id == SubgraphId::Layer ? kept_ : std::vector<KeptName>{}},
                    fn,
                    all);
}

void LayerTape::end_layer(const at::Tensor& input, const at::Tensor& output) const {
  if (swap_ == nullptr) return;
  if (offers_ && output.requires_grad())
    (void)swap_->offer(input_layer_, input);
  else
    swap_->settle();
}

void LayerTape::event(Event event, const at::Tensor& output) const {
  if (is_tracing() && !in_replay())
    trace({.kind = TraceEvent::Kind::Node, .name = prefix_ + std::string(event_name(event))});
  if (in_replay()) return;
  // First: hooks run in the order of their registration, and what is restored reads the input.
  if (swap_ != nullptr && event == Event::MlpPostEnd) swap_->trigger_at(input_layer_, output);
  if (plan_ == nullptr) return;
  tape_->event(prefix_ + std::string(event_name(event)));
  // Regions inside of a whole layer come back with it.
  if (has(SubgraphId::Layer)) return;
  restore_with(event, output);
  if (checked_) require_released(event);
}

void LayerTape::restore_with(Event event, const at::Tensor& output) const {
  std::vector<std::string> names;
  for (const SubgraphId id : restore_order(*plan_)) {
    const auto comes_back = [&](ActId one) {
      const ActRule* act = plan_->find(one);
      return act != nullptr && act->keep == Keep::Release &&
             act->restore == Trigger{Trigger::Kind::OnGradOf, event};
    };
    const auto& outputs = plan_->find(id)->outputs;
    if (std::any_of(outputs.begin(), outputs.end(), comes_back)) names.push_back(region_name(id));
  }
  // Where no gradient will arrive nobody reads the values before their own pull.
  if (names.empty() || !output.defined() || !output.requires_grad()) return;
  tape_->restore_at(output, names);
}

void LayerTape::require_released(Event event) const {
  for (const RegionRule& region : plan_->regions) {
    if (region.subgraph == SubgraphId::MlpPost) continue;  // the next layer reads it
    for (const ActId id : region.outputs) {
      const ActRule* act = plan_->find(id);
      if (act != nullptr && act->keep == Keep::Release && act->release == event)
        tape_->require_freed(region_name(region.subgraph), id.out);
    }
  }
}

}  // namespace lethe
