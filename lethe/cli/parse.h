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
};

/// Splits argv (without the program's name). Every flag of the settings schema is known, under
/// every alias. Throws one ConfigError with every unknown command, flag or word, every flag without
/// its value and every flag of another command. With help, nothing else is checked.
[[nodiscard]] Invocation parse_command_line(const std::vector<std::string>& words);

}  // namespace lethe
