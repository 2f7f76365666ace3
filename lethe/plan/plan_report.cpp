#include "lethe/plan/plan_report.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lethe/plan/check_plan.h"

namespace lethe {
namespace {

/// "L0-L2, L4, MTP0" of the chosen layers; is_chosen by the position in the stage.
template <class Chosen>
std::string layer_ranges(const PlanSubject& subject, const Chosen& is_chosen) {
  const std::vector<StageLayer> layers = stage_layers(subject);
  const auto follows = [&](size_t i) {
    return i < layers.size() && is_chosen(i) && layers[i].kind.mtp == layers[i - 1].kind.mtp &&
           layers[i].index == layers[i - 1].index + 1;
  };
  std::vector<std::string> parts;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!is_chosen(i)) continue;
    const std::string first = layer_label(subject, layers[i].index);
    size_t last = i;
    while (follows(last + 1)) ++last;
    parts.push_back(last == i ? first : first + "-" + layer_label(subject, layers[last].index));
    i = last;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string layers_of(const PlanSubject& subject, const RecomputePlan& plan, size_t index) {
  return layer_ranges(subject, [&](size_t i) { return plan.layer_to_class[i] == index; });
}

std::string region_line(const RegionBytes& row) {
  std::string line = fmt::format("    {:<16} {:<4} frees {:>10} B  keeps {:>10} B",
                                 subgraph_name(row.subgraph),
                                 subgraph_info(row.subgraph).label,
                                 row.freed(),
                                 row.retained);
  if (row.freed() > 0) return line + "\n";
  if (row.nested) return line + "  (frees nothing: its output counts for the layer)\n";
  line += row.holders.empty()
              ? "  (frees nothing: nobody saves its output)"
              : fmt::format("  (frees nothing: read by {})", fmt::join(row.holders, ", "));
  return line + "\n";
}

std::string unit_line(const UnitBytes& unit) {
  std::vector<std::string_view> calls;
  for (const KeptBytes& kept : unit.calls) calls.emplace_back(kept.call);
  return fmt::format("    {:<16} {:<4} {:>18}  keeps {:>10} B  {}\n",
                     unit.unit,
                     "unit",
                     "",
                     unit.bytes(),
                     fmt::join(calls, ", "));
}

/// The input of the first layer is the embedding, whose streams are one memory.
std::string swap_line(const PlanSubject& subject,
                      const RecomputePlan& plan,
                      const ActivationSizes& sizes,
                      size_t index) {
  const int64_t bytes = act_bytes(subject.model, sizes, {SubgraphId::LayerInput, 0});
  std::string line = fmt::format("    {:<16} {:<4} swaps {:>10} B",
                                 subgraph_name(SubgraphId::LayerInput),
                                 subgraph_info(SubgraphId::LayerInput).label,
                                 bytes);
  if (plan.layer_to_class[0] == index && stage_layers(subject)[0].index == 0)
    line += fmt::format("  (L0: {} B)", bytes / subject.model.streams);
  return line + "\n";
}

/// A declared unit beside this build and this model.
struct UnitRow {
  std::string_view unit, kind;
  std::vector<std::string> names, missing;
  std::string layers;
};

std::vector<UnitRow> unit_rows(const PlanSubject& subject,
                               const SaveTargetMap& map,
                               const SaveNames& names) {
  const std::vector<StageLayer> layers = stage_layers(subject);
  std::vector<UnitRow> rows;
  for (const SaveTarget& target : map.targets) {
    const bool ops = target.kind == TargetKind::KeptOps;
    UnitRow& row = rows.emplace_back();
    row.unit = save_unit_name(target.unit);
    row.kind = ops ? "operator" : "callable";
    for (const std::string& name : target.names) {
      const bool here = ops ? names.has_op(name) : names.has_callable(name);
      (here ? row.names : row.missing).push_back(name);
    }
    row.layers = layer_ranges(
        subject, [&](size_t i) { return !target.needs_slots || layers[i].kind.ratio > 0; });
    if (row.layers.empty()) row.layers = "no layer";
  }
  return rows;
}

}  // namespace

std::vector<ClassSummary> plan_summary(const PlanSubject& subject,
                                       const RecomputePlan& plan,
                                       const MicroBatchShape& shape) {
  std::vector<ClassSummary> rows;
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    ClassSummary row{.layers = layers_of(subject, plan, i), .name = plan.classes[i].layer_class};
    for (const RegionBytes& region :
         region_bytes(subject.model,
                      sizes_of(subject.model, shape, plan.classes[i].kind),
                      subject.operators,
                      plan.classes[i]))
      row.freed_bytes += region.freed();
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string plan_report(const PlanSubject& subject,
                        const RecomputePlan& plan,
                        const MicroBatchShape& shape) {
  if (plan.is_empty()) return "nothing is recomputed or swapped\n";
  std::string out;
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    const LayerPlan& layer = plan.classes[i];
    out += fmt::format("{}  {}\n", layers_of(subject, plan, i), layer.layer_class);
    const ActivationSizes sizes = sizes_of(subject.model, shape, layer.kind);
    for (const RegionBytes& row : region_bytes(subject.model, sizes, subject.operators, layer))
      out += region_line(row);
    for (const UnitBytes& unit : unit_bytes(subject.model, sizes, subject.operators, layer))
      out += unit_line(unit);
    if (layer.swaps_input()) out += swap_line(subject, plan, sizes, i);
  }
  for (const std::string& note : plan_notes(subject, plan)) out += "note: " + note + "\n";
  return out;
}

std::string units_report(const PlanSubject& subject,
                         const SaveTargetMap& map,
                         const SaveNames& names) {
  const std::vector<UnitRow> rows = unit_rows(subject, map, names);
  if (rows.empty()) return map.model_type + " declares no save units\n";
  std::vector<std::string> shown;
  size_t width = 0;
  for (const UnitRow& row : rows) {
    std::vector<std::string> words = row.names;
    for (const std::string& name : row.missing) words.push_back(name + " (not here)");
    shown.push_back(fmt::format("{}", fmt::join(words, ", ")));
    width = std::max(width, shown.back().size());
  }
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i)
    out += fmt::format(
        "{:<12} {:<9} {:<{}}  {}\n", rows[i].unit, rows[i].kind, shown[i], width, rows[i].layers);
  return out;
}

std::string units_json(const PlanSubject& subject,
                       const SaveTargetMap& map,
                       const SaveNames& names) {
  using Json = nlohmann::ordered_json;
  Json units = Json::array();
  for (const UnitRow& row : unit_rows(subject, map, names))
    units.push_back({{"unit", row.unit},
                     {"kind", row.kind},
                     {"names", row.names},
                     {"missing", row.missing},
                     {"layers", row.layers}});
  return Json{{"model_type", map.model_type}, {"units", std::move(units)}}.dump(1) + "\n";
}

}  // namespace lethe
