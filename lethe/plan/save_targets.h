#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/recompute_config.h"

// What the save units of a model mean (spec 3 6.2). A model declares a map, a user selects units,
// resolve_save_units puts the two together. No tensors: names only.
namespace lethe {

/// How a unit is kept.
enum class TargetKind : uint8_t {
  KeptOps,        // operators that belong to this unit alone, by name; any of the names may exist
  KeptCallables,  // parts of the model's code, by name: the smallest that cover the unit (R6.15)
};

/// A collective inside what a unit keeps.
enum class UnitCollective : uint8_t {
  None,
  Whole,    // destination, collective and wait together: may be kept
  Partial,  // may not (SC13, R6.22)
};

/// What one unit resolves to.
struct SaveTarget {
  SaveUnit unit{};
  TargetKind kind = TargetKind::KeptOps;
  std::vector<std::string> names;  // several spellings of one kernel may stand here (R6.8)
  bool writes_in_place = false;    // writes to an argument: never kept (R6.21, SC13)
  UnitCollective collective = UnitCollective::None;
  bool needs_slots = false;  // only layers with a ratio > 0 have it
};

/// The vocabulary of what a model can keep resident. Empty is a legitimate answer: the model has
/// nothing worth keeping (R6.7).
struct SaveTargetMap {
  std::string model_type;  // for errors: "deepseek_v4"
  std::vector<SaveTarget> targets;
};

/// Where a name exists.
struct SaveNames {
  std::function<bool(std::string_view)> has_op;        // in this build
  std::function<bool(std::string_view)> has_callable;  // in any layer of the model
};

/// DeepSeek-V4's units.
[[nodiscard]] const SaveTargetMap& deepseek_v4_save_targets();

/// One selected unit.
struct ResolvedUnit {
  SaveUnit unit{};
  TargetKind kind = TargetKind::KeptOps;
  std::vector<std::string> names;  // those that exist
  bool operator==(const ResolvedUnit&) const = default;
};

struct ResolvedUnits {
  std::vector<ResolvedUnit> units;
  std::vector<std::string> warnings;  // nothing is kept although something was asked for
  std::vector<std::string> debugs;    // spellings that this build lacks (R6.8)

  /// Whether replays need to look at operators at all (R6.27).
  [[nodiscard]] bool keeps_ops() const;
  /// Names of the units, for the plan.
  [[nodiscard]] std::vector<std::string> names() const;
  /// For the log: the list that pins them (R6.3), and which callables are kept (R6.13). Empty
  /// without units.
  [[nodiscard]] std::vector<std::string> kept_lines() const;
};

/// Throws ConfigError with one line per unit: a unit that the model does not declare (R6.10), or of
/// which no name exists (R6.9, naming every name tried and the units that would resolve); all of an
/// empty map (R6.11). MissingUnits::Warn makes warnings of the last two; then nothing may be left,
/// and the engine recomputes whole layers without looking for units (R6.12).
[[nodiscard]] ResolvedUnits resolve_save_units(const SaveSelection& selection,
                                               const SaveTargetMap& map,
                                               const SaveNames& names,
                                               MissingUnits missing);

/// The targets of these units, in the order of the map.
[[nodiscard]] std::vector<SaveTarget> targets_of(const SaveTargetMap& map,
                                                 const std::vector<std::string>& units);

/// Throws one ConfigError with everything wrong in a declaration, for models outside this
/// repository too (R6.14): a unit twice, no names, none of the names existing, a unit that writes
/// in place or keeps a part of a collective (SC13), a collective kept by operator name (R6.22).
void validate_targets(const SaveTargetMap& map, const SaveNames& names);

}  // namespace lethe
