#pragma once

#include <string>
#include <vector>

#include "lethe/config/resolve.h"

namespace lethe {

/// One command line, split but not yet checked against the settings' rules.
struct Invocation {
  std::string command;  // "train"; empty: lethe alone
  std::vector<std::string> positional;
  SettingsRequest raw;  // for resolve()
  bool help = false;
  bool print_config = false;
  bool dry_run = false;
  bool print_optimizer = false;
};

/// Splits argv (without the program's name). Every flag of the settings schema is known, under
/// every alias. An unknown flag, one of another command, a lost value and a surplus word go to
/// raw.errors, so that resolve(raw), which every command calls, reports them with the broken rules.
/// Throws ConfigError for an unknown command and for a line that cannot be split. With help,
/// nothing else is checked.
[[nodiscard]] Invocation parse_command_line(const std::vector<std::string>& words);

}  // namespace lethe
