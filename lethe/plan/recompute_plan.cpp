#include "lethe/plan/recompute_plan.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace lethe {
namespace {

constexpr ActId kLayerInput{SubgraphId::LayerInput, 0}, kLayerOutput{SubgraphId::MlpPost, 0};

/// Regions of the attention that the reference gives back with --recompute-csa-attention.
bool is_csa(SubgraphId id) {
  return id == SubgraphId::QUpNorm || id == SubgraphId::Sparse || id == SubgraphId::Oup ||
         id == SubgraphId::AttnBda;
}

std::vector<ActId> releases(const LayerPlan& plan, int stage) {
  std::vector<ActId> out;
  for (const RegionRule& region : plan.regions) {
    if (!is_csa(region.subgraph) || release_stage(region.subgraph) != stage) continue;
    for (const ActId id : region.outputs) {
      const ActRule* rule = plan.find(id);
      if (rule != nullptr && rule->keep == Keep::Release) out.push_back(id);
    }
  }
  return out;
}

}  // namespace

const RegionRule* LayerPlan::find(SubgraphId id) const {
  const auto found = std::find_if(
      regions.begin(), regions.end(), [&](const auto& region) { return region.subgraph == id; });
  return found == regions.end() ? nullptr : &*found;
}

const ActRule* LayerPlan::find(ActId id) const {
  const auto found =
      std::find_if(acts.begin(), acts.end(), [&](const auto& a) { return a.id == id; });
  return found == acts.end() ? nullptr : &*found;
}

const LayerPlan& RecomputePlan::layer(size_t index) const {
  return classes.at(layer_to_class.at(index));
}

bool LayerPlan::swaps_input() const {
  const ActRule* const input = find(kLayerInput);
  return input != nullptr && input->keep == Keep::Swap;
}

bool RecomputePlan::recomputes() const {
  return std::any_of(layer_to_class.begin(), layer_to_class.end(), [this](uint16_t index) {
    return !classes.at(index).regions.empty();
  });
}

bool RecomputePlan::swaps() const {
  return std::any_of(layer_to_class.begin(), layer_to_class.end(), [this](uint16_t index) {
    return classes.at(index).swaps_input();
  });
}

size_t RecomputePlan::input_source(size_t index) const {
  const auto is_given_back = [this](size_t i) {
    const ActRule* const before = i == 0 ? nullptr : layer(i - 1).find(kLayerOutput);
    return before != nullptr && (before->keep == Keep::Release || before->keep == Keep::Full);
  };
  while (is_given_back(index)) --index;
  return index;
}

std::vector<SubgraphId> restore_order(const LayerPlan& plan) {
  std::vector<SubgraphId> order;
  for (const RegionRule& region : plan.regions) order.push_back(region.subgraph);
  std::sort(order.begin(), order.end());  // the enumerators stand in program order
  return order;
}

std::vector<ActId> stage_one_releases(const LayerPlan& plan) {
  return releases(plan, 1);
}

std::vector<ActId> final_releases(const LayerPlan& plan) {
  return releases(plan, 2);
}

bool reference_clones_attention(const LayerPlan& plan, bool overlap) {
  return overlap && plan.find(SubgraphId::AttnPost) != nullptr &&
         plan.find(SubgraphId::Oup) == nullptr;
}

std::string act_text(ActId id) {
  return fmt::format("{}.{}", subgraph_name(id.subgraph), id.out);
}

std::optional<ActId> find_act(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<SubgraphId> subgraph = find_subgraph(text.substr(0, dot));
  ActId id;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + dot + 1, end, id.out);
  if (!subgraph || error != std::errc() || stop != end) return std::nullopt;
  id.subgraph = *subgraph;
  return id;
}

}  // namespace lethe
