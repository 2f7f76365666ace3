#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/io/dtype.h"

namespace lethe::detail {

/// One tensor's entry as its JSON says it, before the ranges are compared with each other and the
/// file.
struct HeaderEntry {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // data_offsets, relative to the data region
  uint64_t end = 0;
  uint64_t offset = 0;  // byte of the file where the entry ends, for errors
};

struct HeaderJson {
  std::vector<HeaderEntry> entries;  // in JSON order; names are unique
  std::map<std::string, std::string> metadata;
};

/// Parses the JSON text of a header that begins at byte 8 of the file `path`.
/// Throws CheckpointError with the byte of the file at which the parser stood.
[[nodiscard]] HeaderJson parse_header_json(std::string_view text, const std::string& path);

/// Throws CheckpointError "PATH: byte OFFSET [RULE]: TEXT".
[[noreturn]] void refuse_safetensors(const std::string& path,
                                     uint64_t offset,
                                     std::string_view rule,
                                     const std::string& text);

}  // namespace lethe::detail
