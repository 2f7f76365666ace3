#pragma once

#include <string>

#include "lethe/config/resolve.h"
#include "lethe/config/settings_schema.h"

namespace lethe {

/// The resolved settings as TOML: every value with its provenance as a comment, then the rules that
/// were checked. Reading it as the only --config gives an equal RunConfig.
[[nodiscard]] std::string print_config(const ResolvedSettings& resolved);

/// The rows of a command for --help: grouped, each with default, rule and meaning, at most 100
/// columns.
[[nodiscard]] std::string settings_help(CommandSet command);

/// The reference page of every setting, in Markdown; not-built names are listed at its end.
[[nodiscard]] std::string settings_markdown();

/// The settings that decide what a training run computes (OnResume Same and Changeable), key ->
/// value as text; those without a value are left out.
[[nodiscard]] std::map<std::string, std::string> deciding_settings(const RunConfig& config);

}  // namespace lethe
