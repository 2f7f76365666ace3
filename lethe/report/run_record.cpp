#include "lethe/report/run_record.h"

#include <fstream>
#include <string>

#include "lethe/base/error.h"

namespace lethe::report {
namespace {

using Object = RunRecord::Object;

/// The event of one line; throws DataError for a line that is not an event.
std::string event_of(const Object& line, const std::filesystem::path& path, int64_t number) {
  LETHE_CHECK(
      DataError,
      line.is_object() && line.contains("event") && line["event"].is_string(),
      "run record: line {} of '{}' must be a JSON object with a text field 'event', got '{}'; "
      "is this a run record?",
      number,
      path.string(),
      line.is_discarded() ? "no JSON" : line.dump().substr(0, 60));
  return line["event"];
}

void check_step(const Object& line, const std::filesystem::path& path, int64_t number) {
  LETHE_CHECK(DataError,
              line.contains("step") && line["step"].is_number(),
              "run record: line {} of '{}' must have a number 'step', got '{}'",
              number,
              path.string(),
              line.dump().substr(0, 60));
}

void add(RunRecord& record, Object line, const std::filesystem::path& path, int64_t number) {
  const std::string event = event_of(line, path, number);
  LETHE_CHECK(DataError,
              number > 1 || event == "start",
              "run record: the first event of '{}' must be 'start', got '{}'",
              path.string(),
              event);
  line.erase("event");
  if (event == "start") {
    record.start = std::move(line);
  } else if (event == "end") {
    record.end = std::move(line);
  } else if (event == "step") {
    check_step(line, path, number);
    record.steps.push_back(std::move(line));
  } else if (event == "eval") {
    check_step(line, path, number);
    record.evals.push_back(std::move(line));
  }
}

}  // namespace

RunRecord read_run_record(const std::filesystem::path& path) {
  std::ifstream file(path);
  LETHE_CHECK(
      DataError, file.good(), "run record: cannot read '{}'; does it exist?", path.string());
  RunRecord record;
  std::string text;
  int64_t number = 0;
  while (std::getline(file, text)) {
    ++number;
    Object line = Object::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_discarded() &&
        file.eof()) {  // no newline after it: the run was killed while it wrote
      record.cut_off = true;
      break;
    }
    add(record, std::move(line), path, number);
  }
  LETHE_CHECK(DataError,
              !record.start.is_null(),
              "run record: '{}' must begin with a 'start' event, got {} complete lines",
              path.string(),
              record.cut_off ? number - 1 : number);
  return record;
}

}  // namespace lethe::report
