#include "lethe/plan/saved_bytes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lethe {
namespace {

using Id = SubgraphId;

constexpr ActId kLayerOutput{Id::MlpPost, 0};

bool is_in_span(Id region, Event node) {
  const SubgraphInfo& span = subgraph_info(region);
  return node >= span.first && node <= span.last;
}

// An output that only the region's own nodes save is no more than another value inside.
bool saved_only_inside(Id region, const std::vector<Event>& savers) {
  return std::all_of(
      savers.begin(), savers.end(), [region](Event saver) { return is_in_span(region, saver); });
}

// Whether the region's function saves its own output. What saves q_up and x32 is another sub-graph
// of the same node.
bool saves_output(Id region, const std::vector<Event>& savers) {
  if (region == Id::QUp || region == Id::CompressCast) return false;
  return std::any_of(
      savers.begin(), savers.end(), [region](Event saver) { return is_in_span(region, saver); });
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

/// The regions of one layer.
class LayerRows {
 public:
  LayerRows(const ModelConfig& model,
            const ActivationSizes& sizes,
            const OperatorFacts& facts,
            const LayerPlan& layer)
      : model_(model),
        sizes_(sizes),
        facts_(facts),
        layer_(layer),
        flow_(layer_flow(layer.kind, facts)) {}

  [[nodiscard]] std::vector<RegionBytes> make() const {
    std::vector<RegionBytes> rows;
    const bool whole = layer_.find(Id::Layer) != nullptr;
    for (const Id id : restore_order(layer_)) {
      if (id == Id::Layer)
        rows.push_back(whole_layer(rows));
      else
        rows.push_back(whole ? nested(id) : alone(id));
    }
    return rows;
  }

 private:
  [[nodiscard]] int64_t inside(Id id) const {
    return inside_bytes(model_, sizes_, facts_, layer_.kind, id);
  }

  [[nodiscard]] std::vector<Event> savers_of(ActId out) const {
    return flow_.find(out)->backward_readers.events();
  }

  [[nodiscard]] RegionBytes alone(Id id) const {
    RegionBytes row{.subgraph = id, .inside = inside(id), .holders = holders_in(flow_, layer_, id)};
    for (const ActId out : layer_.find(id)->outputs) {
      const std::vector<Event> savers = savers_of(out);
      // The next layer saves what this one returns.
      if (savers.empty() && id != Id::MlpPost) continue;
      const bool released =
          layer_.find(out)->keep == Keep::Release || saved_only_inside(id, savers);
      (released ? row.released : row.retained) += act_bytes(model_, sizes_, out);
    }
    return row;
  }

  // Inputs and outputs of a region inside of the layer's are saved by that one; what several save
  // counts for the innermost.
  [[nodiscard]] RegionBytes nested(Id id) const {
    RegionBytes row{.subgraph = id, .inside = inside(id), .nested = true};
    for (const ActId out : layer_.find(id)->outputs)
      if (saves_output(id, savers_of(out))) row.inside += act_bytes(model_, sizes_, out);
    if (id == Id::Moe && layer_.find(Id::SharedExpert) != nullptr)
      row.inside -= inside(Id::SharedExpert);
    return row;
  }

  [[nodiscard]] RegionBytes whole_layer(const std::vector<RegionBytes>& nested_rows) const {
    RegionBytes row{.subgraph = Id::Layer, .inside = inside(Id::Layer)};
    for (const RegionBytes& other : nested_rows) row.inside -= other.inside;
    bool output_is_kept = false;
    for (const UnitBytes& unit : unit_bytes(model_, sizes_, facts_, layer_))
      for (const KeptBytes& kept : unit.calls) {
        row.inside -= kept.inside;
        output_is_kept = output_is_kept || kept.output > 0;
      }
    // Inside of a chunk of whole layers, or an mHC block of nested ones, it goes.
    const Keep keep = layer_.find(kLayerOutput)->keep;
    const bool goes = (keep == Keep::Release || keep == Keep::Full) && !output_is_kept;
    (goes ? row.released : row.retained) += act_bytes(model_, sizes_, kLayerOutput);
    return row;
  }

  const ModelConfig& model_;
  const ActivationSizes& sizes_;
  const OperatorFacts& facts_;
  const LayerPlan& layer_;
  LayerFlow flow_;
};

/// Calls visit(name, layer, sizes) for each layer of the stage; name(id) is that of a region.
template <class Visit>
void for_each_layer(const PlanSubject& subject,
                    const RecomputePlan& plan,
                    const MicroBatchShape& shape,
                    int64_t micro_batch,
                    const Visit& visit) {
  const std::vector<StageLayer> layers = stage_layers(subject);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto name = [&](Id region) {
      return fmt::format(
          "{}.mb{}.{}", layer_label(subject, layers[i].index), micro_batch, subgraph_name(region));
    };
    visit(name, plan.layer(i), sizes_of(subject.model, shape, layers[i].kind));
  }
}

}  // namespace

std::vector<std::string> output_holders(const OperatorFacts& facts,
                                        const LayerPlan& layer,
                                        SubgraphId region) {
  return holders_in(layer_flow(layer.kind, facts), layer, region);
}

std::vector<RegionBytes> region_bytes(const ModelConfig& model,
                                      const ActivationSizes& sizes,
                                      const OperatorFacts& facts,
                                      const LayerPlan& layer) {
  return LayerRows(model, sizes, facts, layer).make();
}

std::map<std::string, int64_t> predicted_bytes(const PlanSubject& subject,
                                               const RecomputePlan& plan,
                                               const MicroBatchShape& shape,
                                               int64_t micro_batch) {
  std::map<std::string, int64_t> predicted;
  const auto add = [&](const auto& name, const LayerPlan& layer, const ActivationSizes& sizes) {
    for (const RegionBytes& row : region_bytes(subject.model, sizes, subject.operators, layer))
      predicted[name(row.subgraph)] = row.freed();
  };
  for_each_layer(subject, plan, shape, micro_batch, add);
  return predicted;
}

std::map<std::string, std::vector<UnitBytes>> predicted_units(const PlanSubject& subject,
                                                              const RecomputePlan& plan,
                                                              const MicroBatchShape& shape,
                                                              int64_t micro_batch) {
  std::map<std::string, std::vector<UnitBytes>> predicted;
  const auto add = [&](const auto& name, const LayerPlan& layer, const ActivationSizes& sizes) {
    if (layer.save_units.empty()) return;
    std::vector<UnitBytes> units = unit_bytes(subject.model, sizes, subject.operators, layer);
    if (!units.empty()) predicted[name(Id::Layer)] = std::move(units);
  };
  for_each_layer(subject, plan, shape, micro_batch, add);
  return predicted;
}

}  // namespace lethe
