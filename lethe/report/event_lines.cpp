#include "lethe/report/event_lines.h"

#include <fstream>

#include "lethe/base/error.h"

namespace lethe::report {
namespace {

using Object = nlohmann::ordered_json;

constexpr size_t kShown = 60;  // characters of a refused line in its message

/// The event of one line; throws DataError for a line that is not an event.
std::string event_of(const EventLines& file, const Object& line, int64_t number) {
  LETHE_CHECK(DataError,
              line.is_object() && line.contains("event") && line["event"].is_string(),
              "{}: line {} of '{}' must be a JSON object with a text field 'event', got '{}'; "
              "is this a {}?",
              file.what,
              number,
              file.path.string(),
              line.is_discarded() ? "no JSON" : line.dump().substr(0, kShown),
              file.what);
  return line["event"];
}

}  // namespace

bool read_event_lines(const EventLines& file, const std::function<void(EventLine)>& visit) {
  std::ifstream stream(file.path);
  LETHE_CHECK(DataError,
              stream.good(),
              "{}: cannot read '{}'; does it exist?",
              file.what,
              file.path.string());
  std::string text;
  for (int64_t number = 1; std::getline(stream, text); ++number) {
    // The parser takes a byte 0 for the end of its input, and would hide what follows.
    Object line = text.find('\0') == std::string::npos
                      ? Object::parse(text, nullptr, /*allow_exceptions=*/false)
                      : Object(Object::value_t::discarded);
    // No line break after it: the run was killed while it wrote.
    if (line.is_discarded() && stream.eof()) return true;
    if (line.is_discarded() && file.skip_broken) continue;
    std::string event = event_of(file, line, number);
    line.erase("event");
    visit({std::move(event), std::move(line), number});
  }
  return false;
}

void require_number(const EventLines& file, const EventLine& line, std::string_view key) {
  const auto found = line.fields.find(key);
  LETHE_CHECK(DataError,
              found != line.fields.end() && found->is_number(),
              "{}: line {} of '{}' must have a number '{}', got '{}'",
              file.what,
              line.number,
              file.path.string(),
              key,
              line.fields.dump().substr(0, kShown));
}

}  // namespace lethe::report
