#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/base/error.h"
#include "lethe/config/settings_value.h"
#include "lethe/config/toml_file.h"

namespace {

std::vector<lethe::GivenSetting> parsed(std::string_view text) {
  try {
    return lethe::parse_toml(text, "input");
  } catch (const lethe::ConfigError&) {
    return {};
  }
}

/// The value that is printed for a setting is read back as the same value.
void check_round_trip(const lethe::Setting& row, const lethe::GivenSetting& given) {
  std::vector<std::string> notes;
  lethe::SettingValue value;
  try {
    value = lethe::parse_value(row, given, notes);
  } catch (const lethe::ConfigError&) {
    return;
  }
  const std::string line = row.key() + " = " + lethe::value_text(value) + "\n";
  const auto again = lethe::parse_toml(line, "output");
  if (again.size() != 1 || lethe::parse_value(row, again.front(), notes) != value) std::abort();
}

}  // namespace

// libFuzzer's entry. Property: any bytes are either refused as ConfigError, or every key has a name
// and a place, and a value that its setting accepts is printed as TOML that gives the same value.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const lethe::GivenSetting& given : parsed(text)) {
    if (!given.origin.starts_with("input:")) std::abort();
    const lethe::Setting* row = lethe::find_setting(given.name);
    if (row != nullptr) check_round_trip(*row, given);
  }
  return 0;
}
