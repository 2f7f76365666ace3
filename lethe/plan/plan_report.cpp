#include "lethe/plan/plan_report.h"

#include <fmt/ranges.h>

#include "lethe/plan/check_plan.h"

namespace lethe {
namespace {

/// "L0-L2, L4" of the layers of a class.
std::string layers_of(const PlanSubject& subject, const RecomputePlan& plan, size_t index) {
  const std::vector<StageLayer> layers = stage_layers(subject);
  std::vector<std::string> parts;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (plan.layer_to_class[i] != index) continue;
    size_t last = i;
    while (last + 1 < layers.size() && plan.layer_to_class[last + 1] == index &&
           layers[last + 1].index == layers[last].index + 1)
      ++last;
    const std::string first = layer_label(subject, layers[i].index);
    parts.push_back(last == i ? first : first + "-" + layer_label(subject, layers[last].index));
    i = last;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string region_line(const RegionBytes& row) {
  std::string line = fmt::format("    {:<16} {:<4} frees {:>10} B  keeps {:>10} B",
                                 subgraph_name(row.subgraph),
                                 subgraph_info(row.subgraph).label,
                                 row.freed(),
                                 row.retained);
  if (row.freed() == 0)
    line += row.holders.empty()
                ? "  (frees nothing: nobody saves its output)"
                : fmt::format("  (frees nothing: read by {})", fmt::join(row.holders, ", "));
  return line + "\n";
}

}  // namespace

std::string plan_report(const PlanSubject& subject,
                        const RecomputePlan& plan,
                        const ActivationSizes& sizes) {
  if (plan.is_empty()) return "nothing is recomputed\n";
  std::string out;
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    const LayerPlan& layer = plan.classes[i];
    out += fmt::format("{}  {}\n", layers_of(subject, plan, i), layer.layer_class);
    for (const RegionBytes& row : region_bytes(subject.model, sizes, subject.operators, layer))
      out += region_line(row);
  }
  for (const std::string& note : plan_notes(subject, plan)) out += "note: " + note + "\n";
  return out;
}

std::string units_report(const SaveTargetMap& map, const SaveNames& names) {
  if (map.targets.empty()) return map.model_type + " declares no save units\n";
  std::string out;
  for (const SaveTarget& target : map.targets) {
    const bool ops = target.kind == TargetKind::KeptOps;
    std::vector<std::string> shown;
    for (const std::string& name : target.names) {
      const bool here = ops ? names.has_op(name) : names.has_callable(name);
      shown.push_back(here ? name : name + " (not here)");
    }
    out += fmt::format("{:<12} {:<9} {}\n",
                       save_unit_name(target.unit),
                       ops ? "operator" : "callable",
                       fmt::join(shown, ", "));
  }
  return out;
}

}  // namespace lethe
