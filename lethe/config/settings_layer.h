#pragma once

#include <map>
#include <string>
#include <vector>

#include "lethe/config/error_list.h"
#include "lethe/config/settings_value.h"

namespace lethe {

inline constexpr const char* kCommandLineOrigin = "command line";
inline constexpr const char* kCheckpointOrigin = "checkpoint";

/// A value with its source.
struct AssignedSetting {
  SettingValue value;
  std::string origin;  // "command line", "run.toml:3", "recipe tiny"
  std::string shown;   // as an error names it
};

/// One source of settings: key -> value.
using SettingLayer = std::map<std::string, AssignedSetting>;

/// The row that the command may use under given.name. Throws ConfigError: an unknown name (the
/// nearest of the command's names and other_names is suggested), one that is not built, one of
/// another command.
[[nodiscard]] const Setting& usable_setting(CommandSet command,
                                            const GivenSetting& given,
                                            const std::vector<std::string>& other_names = {});

/// Turns what one source says into values: unknown names, names of other commands, names that are
/// not built, repeated names, aliases that disagree and wrong values join errors.
[[nodiscard]] SettingLayer read_layer(CommandSet command,
                                      const std::vector<GivenSetting>& given,
                                      ErrorList& errors,
                                      std::vector<std::string>& notes);

/// over wins; where both have a key with different values, a note says so if log_conflicts.
void merge_layer(SettingLayer& base,
                 const SettingLayer& over,
                 bool log_conflicts,
                 std::vector<std::string>& notes);

/// Every name that a command accepts, flags as "--num-layers", keys as "num_layers".
[[nodiscard]] std::vector<std::string> accepted_names(CommandSet command, bool as_flags);

}  // namespace lethe
