#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/data/prepare.h"
#include "lethe/io/file_facts.h"

namespace lethe::detail {

/// One input file of a preparation.
struct Source {
  std::string path;
  int64_t bytes = 0;
  InputFormat format = InputFormat::Text;  // never Auto
  FileId id;
};

/// The files of all inputs, in their order.
struct Sources {
  std::vector<Source> files;
  int64_t hidden_skipped = 0;  // TextFiles::hidden_skipped of all folders
};

/// "auto", "text", "lines", "jsonl"
[[nodiscard]] std::string_view format_name(InputFormat format);

/// ConfigError for settings without sense.
void check_settings(const PrepareSettings& settings);

/// DataError: no such path, no file at all, with InputFormat::Auto a compressed one. ConfigError:
/// the output lies in an input folder, two inputs hold the same file.
[[nodiscard]] Sources find_sources(const PrepareSettings& settings);

}  // namespace lethe::detail
