#pragma once

#include <map>
#include <string>
#include <vector>

#include "lethe/config/run_config.h"
#include "lethe/config/settings_value.h"

namespace lethe {

/// What a user asked for, before any of it is checked.
struct SettingsRequest {
  std::string command = "train";
  std::vector<std::string> config_files;   // TOML; a later one wins
  std::vector<GivenSetting> command_line;  // wins over the files
  std::vector<std::string> errors;  // found while reading the command line; reported with the rest
};

/// A configuration that keeps every rule, and where each value came from.
struct ResolvedSettings {
  std::string command;
  RunConfig config;
  std::string recipe;           // empty = none
  std::string hf_config;        // folder; empty = none
  std::string hub_kept = "{}";  // JSON: keys of its config.json without a meaning here, for export
  std::map<std::string, std::string>
      provenance;                  // key -> "built-in", "recipe tiny", "a.toml:3", ...
  std::vector<std::string> notes;  // for the log: repeats, normalisations, unused values
};

/// Built-in values < recipe < files, in their order < command line; no environment. A folder given
/// by
/// --hf-config sets the shape, with which every other source must agree. Throws one ConfigError
/// with every broken rule. Pure but for reading the named files; idempotent.
[[nodiscard]] ResolvedSettings resolve(const SettingsRequest& request);

}  // namespace lethe
