#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lethe::report {

/// A file of JSON objects, one a line, each with a text field "event".
struct EventLines {
  std::filesystem::path path;
  std::string_view what;  // the file in messages, e.g. "run record"
  /// Lines that are not JSON are skipped instead of refused: LineFile ends the line that a killed
  /// process left incomplete, and goes on below it.
  bool skip_broken = false;
};

/// One line, without its field "event".
struct EventLine {
  std::string event;
  nlohmann::ordered_json fields;
  int64_t number = 0;  // 1 = the first line
};

/// Calls visit for every line. True where the last line was cut off: no JSON, no line break after
/// it. Throws DataError: the file cannot be read; a line that is not an event, with its number.
bool read_event_lines(const EventLines& file, const std::function<void(EventLine)>& visit);

/// Throws DataError unless the line has the number `key`.
void require_number(const EventLines& file, const EventLine& line, std::string_view key);

}  // namespace lethe::report
