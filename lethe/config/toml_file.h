#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/settings_value.h"

namespace lethe {

/// The settings of a TOML text: flat keys, or keys below the tables of the settings schema, whose
/// names are documentation only. where = the file's name in messages. Throws ConfigError: not TOML,
/// a table with another name or inside another, a value that no setting can have. Keys are not
/// checked here.
[[nodiscard]] std::vector<GivenSetting> parse_toml(std::string_view text, const std::string& where);

/// The same from a file. Throws ConfigError where it cannot be read.
[[nodiscard]] std::vector<GivenSetting> read_toml_file(const std::string& path);

/// The whole of a small text file. Throws ConfigError naming shown (the flag that asked for it).
[[nodiscard]] std::string read_config_text(const std::string& path, const std::string& shown);

}  // namespace lethe
