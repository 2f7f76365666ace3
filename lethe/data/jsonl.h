#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lethe {

/// Where a line of a text file stands, for errors.
struct LinePlace {
  std::string_view file;
  int64_t line = 1;    // 1-based
  int64_t offset = 0;  // its first byte in the file

  /// "FILE: line LINE (byte OFFSET)"
  [[nodiscard]] std::string text() const;
};

/// One training record of a JSONL file.
struct JsonlRecord {
  bool has_prompt = false;
  std::string prompt;  // no loss is counted on it
  std::string text;    // the `text` field, or the response

  bool operator==(const JsonlRecord&) const = default;
};

/// Parses one line: a JSON object with a string `text`, or with two strings `prompt` and
/// `response`; other fields are ignored. Escapes are resolved, so the strings are valid UTF-8.
/// Throws DataError "PLACE: ...": not JSON (with the byte), not an object, a field missing, not a
/// string or given together with the other form.
JsonlRecord parse_jsonl_line(std::string_view line, const LinePlace& place);

}  // namespace lethe
