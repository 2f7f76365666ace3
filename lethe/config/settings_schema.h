#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lethe/config/run_config.h"

namespace lethe {

enum class SettingType { Int, Float, Bool, String, Enum, IntList, WordList };

/// Value of a setting; an Enum is held as its text.
using SettingValue = std::
    variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<std::string>>;

/// Commands that read settings, as bits: a setting may belong to several.
using CommandSet = unsigned;

namespace command {
inline constexpr CommandSet kTrain = 1;
inline constexpr CommandSet kGenerate = 2;
inline constexpr CommandSet kCompare = 4;
inline constexpr CommandSet kDocs = 8;
inline constexpr CommandSet kTokenize = 16;
inline constexpr CommandSet kPrepare = 32;
inline constexpr CommandSet kRuns = 64;
inline constexpr CommandSet kUnits = 128;
inline constexpr CommandSet kShape = kTrain | kUnits;  // read the shape of a model
inline constexpr CommandSet kAll = 255;
}  // namespace command

/// The bit of a command's name ("train"), 0 where there is no such command.
[[nodiscard]] CommandSet command_bit(std::string_view name);

/// "train, generate" for a set of bits.
[[nodiscard]] std::string command_names(CommandSet set);

enum class SettingStatus {
  Active,    // decides a member of RunConfig
  Source,    // names where other values come from: --recipe, --hf-config
  Constant,  // accepted only where it says what is true anyway
  NotBuilt,  // known to the specification, absent from this build: using it is an error
};

/// What a setting may do when a run goes on from a checkpoint, which brings its own value.
enum class OnResume {
  Same,          // must be the checkpoint's: the model, the data, the mathematics
  Changeable,    // as Same, unless --allow-setting-changes
  Free,          // the checkpoint's unless given anew: where and how often things are written
  FreeTogether,  // as Free, but one choice: one that is given anew drops the checkpoint's others
  Session,       // of one process; never taken from a checkpoint
};

/// Bounds of a number; an open bound is not reached itself.
struct SettingRange {
  std::optional<double> min, max;
  bool min_open = false, max_open = false;

  [[nodiscard]] bool contains(double value) const;
  /// ">= 1", "> 0 and < 1"; empty without bounds.
  [[nodiscard]] std::string text() const;
};

/// One row of the table that drives command-line flags, TOML keys, --help, --print-config and the
/// reference page (command-line spec 7). Canonical names are Megatron's.
struct Setting {
  std::string flag;                  // without dashes: "num-layers"
  std::vector<std::string> aliases;  // other spellings, without dashes
  std::string table;                 // TOML table; documentation only
  std::string group;                 // heading in --help
  SettingType type = SettingType::String;
  SettingStatus status = SettingStatus::Active;
  CommandSet commands = 0;
  bool required = false;  // no built-in default
  OnResume on_resume = OnResume::Same;
  bool in_hub_config = false;  // config.json has it: a value given beside --hf-config must agree
  SettingRange range;
  std::vector<std::string> choices;        // Enum
  std::vector<std::string> later_choices;  // Enum: specified, not built
  std::string note;                        // rule in words, beyond range and choices
  std::string default_note;  // shown instead of a value that is not set or not constant
  std::string help;          // one sentence
  std::string advice;        // Constant, NotBuilt: what to do instead

  /// Value in a configuration; empty where it has none (unset).
  std::function<std::optional<SettingValue>(const RunConfig&)> get;
  /// Active: writes the value.
  std::function<void(RunConfig&, const SettingValue&)> set;
  /// Optional: normalises the value, adding a note to the log, or returns the rule it breaks.
  std::function<std::string(SettingValue&, std::vector<std::string>& notes)> refine;
  /// Constant: accepts value beside this configuration; empty = must equal get(config).
  std::function<bool(const RunConfig&, const SettingValue&)> accepts;

  /// TOML key: the flag with '_'.
  [[nodiscard]] std::string key() const;
  /// Range, choices and note in one text; empty where everything of the type is allowed.
  [[nodiscard]] std::string rule() const;
  /// "16", "required", "not set".
  [[nodiscard]] std::string default_text() const;

  [[nodiscard]] bool applies_to(CommandSet command) const { return (commands & command) != 0; }
};

/// The table, in the order of its printing: TOML tables are contiguous, groups within them too.
[[nodiscard]] const std::vector<Setting>& settings();

/// The row with this canonical name or alias, with '-' or '_'; nullptr where there is none.
[[nodiscard]] const Setting* find_setting(std::string_view name);

/// True for the types whose flag takes several words.
[[nodiscard]] constexpr bool is_list(SettingType type) {
  return type == SettingType::IntList || type == SettingType::WordList;
}

/// "int", "float", "bool", ...
[[nodiscard]] std::string_view type_name(SettingType type);

}  // namespace lethe
