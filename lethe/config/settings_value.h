#pragma once

#include <string>
#include <vector>

#include "lethe/config/settings_schema.h"

namespace lethe {

/// A setting as somebody wrote it, before its type is known.
struct GivenSetting {
  /// What the words were in their source; a TOML value already has a type.
  enum class Form { Words, Number, Bool, Text, List };

  std::string name;                // flag or key without dashes: an alias stays as written
  std::vector<std::string> words;  // one, or the entries of a list
  std::string shown;               // as an error names it: "--lr", "lr (run.toml:3)"
  std::string origin;              // provenance: "command line", "run.toml:3"
  Form form = Form::Words;
};

/// Text that parse_value reads back to an equal value; TOML syntax.
[[nodiscard]] std::string value_text(const SettingValue& value);

/// Reads the words as row's type and checks choices, range and refine. A list may be several words,
/// or one word in brackets. Notes for the log are appended. Throws ConfigError naming given.shown.
[[nodiscard]] SettingValue parse_value(const Setting& row,
                                       const GivenSetting& given,
                                       std::vector<std::string>& notes);

}  // namespace lethe
