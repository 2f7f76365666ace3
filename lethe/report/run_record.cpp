#include "lethe/report/run_record.h"

#include "lethe/base/error.h"
#include "lethe/report/event_lines.h"

namespace lethe::report {
namespace {

using Object = RunRecord::Object;

double step_of(const Object& entry) {
  return entry["step"].get<double>();
}

/// Leaves out what a run that was killed had written beyond the checkpoint it went on from.
void drop_from(std::vector<Object>& entries, double step) {
  while (!entries.empty() && step_of(entries.back()) >= step) entries.pop_back();
}

void add(RunRecord& record, const EventLines& file, EventLine line) {
  LETHE_CHECK(DataError,
              line.number > 1 || line.event == "start",
              "run record: the first event of '{}' must be 'start', got '{}'",
              file.path.string(),
              line.event);
  if (line.event == "start") {
    record.start = std::move(line.fields);
  } else if (line.event == "end") {
    record.end = std::move(line.fields);
  } else if (line.event == "step") {
    require_number(file, line, "step");
    drop_from(record.steps, step_of(line.fields));
    drop_from(record.evals, step_of(line.fields));
    record.end = nullptr;
    record.steps.push_back(std::move(line.fields));
  } else if (line.event == "eval") {
    require_number(file, line, "step");
    drop_from(record.evals, step_of(line.fields));
    record.evals.push_back(std::move(line.fields));
  }
}

}  // namespace

RunRecord read_run_record(const std::filesystem::path& path) {
  const EventLines file{.path = path, .what = "run record"};
  RunRecord record;
  int64_t num_lines = 0;
  record.cut_off = read_event_lines(file, [&](EventLine line) {
    num_lines = line.number;
    add(record, file, std::move(line));
  });
  LETHE_CHECK(DataError,
              !record.start.is_null(),
              "run record: '{}' must begin with a 'start' event, got {} complete lines",
              path.string(),
              num_lines);
  return record;
}

}  // namespace lethe::report
