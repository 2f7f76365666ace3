#include "lethe/plan/save_targets.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/ranges.h>

#include "lethe/config/error_list.h"

namespace lethe {
namespace {

bool exists(const SaveNames& names, TargetKind kind, std::string_view name) {
  return kind == TargetKind::KeptOps ? names.has_op(name) : names.has_callable(name);
}

const SaveTarget* find_target(const SaveTargetMap& map, SaveUnit unit) {
  const auto found = std::find_if(
      map.targets.begin(), map.targets.end(), [unit](const auto& t) { return t.unit == unit; });
  return found == map.targets.end() ? nullptr : &*found;
}

std::string unit_list(const SaveTargetMap& map) {
  std::vector<std::string_view> words;
  for (const SaveTarget& target : map.targets) words.push_back(save_unit_name(target.unit));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

class UnitResolver {
 public:
  UnitResolver(const SaveTargetMap& map, const SaveNames& names, MissingUnits missing)
      : map_(map), names_(names), missing_(missing) {}

  ResolvedUnits run(const SaveSelection& selection) {
    if (selection.kind == SaveSelection::Kind::All) {
      if (map_.targets.empty())
        miss(
            fmt::format("--save-units all [R6.11]: must have units to keep, got no effect: {} "
                        "declares no save units, every region is recomputed; leave it out",
                        map_.model_type));
      for (const SaveTarget& target : map_.targets) add(target);
    }
    for (const SaveUnit unit : selection.units) add_listed(unit);
    errors_.raise();
    if (out_.units.empty() && !out_.warnings.empty())
      out_.warnings.emplace_back(
          "save units: nothing of the selection is left, layers are recomputed whole");
    return std::move(out_);
  }

 private:
  /// An error, or under --save-units-missing warn a warning.
  void miss(std::string text) {
    if (missing_ == MissingUnits::Warn)
      out_.warnings.push_back(std::move(text));
    else
      errors_.add(std::move(text));
  }

  void add_listed(SaveUnit unit) {
    const SaveTarget* target = find_target(map_, unit);
    if (target != nullptr) return add(*target);
    errors_.add(fmt::format(
        "--save-units {0} [R6.10]: must be a unit of {1}, which has {2}, got '{0}'; choose one of "
        "them. A model composed of others declares no units: set them on the part that owns the "
        "layers",
        save_unit_name(unit),
        map_.model_type,
        unit_list(map_)));
  }

  void add(const SaveTarget& target) {
    ResolvedUnit resolved{.unit = target.unit, .kind = target.kind, .names = {}};
    for (const std::string& name : target.names)
      if (exists(names_, target.kind, name)) resolved.names.push_back(name);
    const std::string_view unit = save_unit_name(target.unit);
    if (resolved.names.empty())
      return miss(
          fmt::format("--save-units {} [R6.9]: one of its names must exist in this model, got none "
                      "of {}; units "
                      "that would resolve: {}",
                      unit,
                      fmt::join(target.names, ", "),
                      resolvable()));
    for (const std::string& name : target.names)
      if (!exists(names_, target.kind, name))
        out_.debugs.push_back(fmt::format("save unit {}: {} does not exist here", unit, name));
    out_.units.push_back(std::move(resolved));
  }

  [[nodiscard]] std::string resolvable() const {
    std::vector<std::string_view> words;
    for (const SaveTarget& target : map_.targets)
      if (std::any_of(target.names.begin(), target.names.end(), [&](const std::string& name) {
            return exists(names_, target.kind, name);
          }))
        words.push_back(save_unit_name(target.unit));
    return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
  }

  const SaveTargetMap& map_;
  const SaveNames& names_;
  MissingUnits missing_;
  ResolvedUnits out_;
  ErrorList errors_;
};

void validate(const SaveTarget& target, const SaveNames& names, ErrorList& errors) {
  const std::string where = fmt::format("save target {}", save_unit_name(target.unit));
  if (target.writes_in_place)
    errors.add(where +
               " [SC13]: must not write to an argument, got an in-place part: a replay "
               "would return what the last writer left; name a smaller part");
  if (target.collective == UnitCollective::Partial)
    errors.add(where +
               " [SC13]: must hold a collective whole, with its destination and its wait, "
               "got a part; name the callable around all three");
  if (target.collective != UnitCollective::None && target.kind == TargetKind::KeptOps)
    errors.add(where +
               " [R6.22]: must keep a collective as a callable, got an operator name; name "
               "the callable around it");
  if (std::none_of(target.names.begin(), target.names.end(), [&](const std::string& name) {
        return exists(names, target.kind, name);
      }))
    errors.add(fmt::format(
        "{} [R6.14]: one of its names must exist, got {}; correct the name",
        where,
        target.names.empty() ? "no names" : fmt::format("{}", fmt::join(target.names, ", "))));
}

}  // namespace

const SaveTargetMap& deepseek_v4_save_targets() {
  static const SaveTargetMap map{
      .model_type = "deepseek_v4",
      .targets = {
          {.unit = SaveUnit::Attn, .names = {"lethe::sparse_attention"}},
          {.unit = SaveUnit::MoeGate, .names = {"lethe::gate"}},
          {.unit = SaveUnit::Experts, .names = {"lethe::experts", "lethe::swiglu_mlp"}},
          {.unit = SaveUnit::Mhc, .names = {"lethe::mhc_pre", "lethe::mhc_post"}},
          {.unit = SaveUnit::Compressor, .names = {"lethe::compressor"}, .needs_slots = true}}};
  return map;
}

bool ResolvedUnits::keeps_ops() const {
  return std::any_of(units.begin(), units.end(), [](const ResolvedUnit& u) {
    return u.kind == TargetKind::KeptOps;
  });
}

std::vector<std::string> ResolvedUnits::names() const {
  std::vector<std::string> out;
  for (const ResolvedUnit& unit : units) out.emplace_back(save_unit_name(unit.unit));
  return out;
}

std::vector<std::string> ResolvedUnits::kept_lines() const {
  if (units.empty()) return {};
  std::vector<std::string> lines{
      fmt::format("save units kept resident: {}", fmt::join(names(), " "))};
  for (const ResolvedUnit& unit : units)
    if (unit.kind == TargetKind::KeptCallables)
      lines.push_back(fmt::format("save unit {} skips {} in replays and keeps what they return",
                                  save_unit_name(unit.unit),
                                  fmt::join(unit.names, ", ")));
  return lines;
}

ResolvedUnits resolve_save_units(const SaveSelection& selection,
                                 const SaveTargetMap& map,
                                 const SaveNames& names,
                                 MissingUnits missing) {
  return UnitResolver(map, names, missing).run(selection);
}

std::vector<SaveTarget> targets_of(const SaveTargetMap& map,
                                   const std::vector<std::string>& units) {
  std::vector<SaveTarget> found;
  std::copy_if(
      map.targets.begin(), map.targets.end(), std::back_inserter(found), [&](const auto& t) {
        return std::find(units.begin(), units.end(), save_unit_name(t.unit)) != units.end();
      });
  return found;
}

void validate_targets(const SaveTargetMap& map, const SaveNames& names) {
  ErrorList errors;
  std::set<SaveUnit> seen;
  for (const SaveTarget& target : map.targets) {
    if (!seen.insert(target.unit).second)
      errors.add(
          fmt::format("save target {} [R6.14]: must be declared once, got it twice; join them",
                      save_unit_name(target.unit)));
    validate(target, names, errors);
  }
  errors.raise();
}

}  // namespace lethe
