#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/settings_schema.h"

namespace lethe {

/// What lethe COMMAND does, for its help and for the reading of its positional words.
struct CommandInfo {
  std::string_view name;
  CommandSet bit;
  std::string_view positional;  // "DIR"; "FILE ..." = one or more; "[DIR ...]" = any; empty: none
  std::string_view summary;     // one line
  std::string_view about;       // one paragraph
  std::array<std::string_view, 3> examples;
};

/// Flags that commands take beside their settings.
struct CommonFlag {
  CommandSet commands;
  std::string_view flag;   // without dashes
  std::string_view value;  // "FILE"; empty: none
  std::string_view help;
};

[[nodiscard]] std::span<const CommandInfo> commands();

/// The command of this name; nullptr where there is none.
[[nodiscard]] const CommandInfo* find_command(std::string_view name);

/// Commands that the specification knows and this build lacks.
[[nodiscard]] std::span<const std::string_view> commands_not_built();

/// Those of a command.
[[nodiscard]] std::vector<CommonFlag> common_flags(CommandSet command);

/// Text of `lethe COMMAND --help`, or of `lethe --help` where command is empty. Throws ConfigError
/// for an unknown command.
[[nodiscard]] std::string help_text(std::string_view command);

}  // namespace lethe
