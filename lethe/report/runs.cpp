#include "lethe/report/runs.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <system_error>

#include "lethe/base/error.h"
#include "lethe/io/file_facts.h"
#include "lethe/io/file_impl.h"
#include "lethe/io/folder_lock.h"
#include "lethe/report/run_record.h"
#include "lethe/report/series.h"
#include "lethe/report/sessions.h"

namespace lethe::report {
namespace {

namespace fs = std::filesystem;
using Object = RunRecord::Object;

constexpr const char* kRecordName = "run.jsonl";

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kRecordName, error);
}

/// The runs below a folder that is none, unsorted. Folders that may not be read, or are removed
/// meanwhile, are left out.
void search(const fs::path& place, std::vector<fs::path>& found) {
  std::error_code error, ignored;
  auto entry = fs::directory_iterator(place, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->is_symlink(ignored) || !entry->is_directory(ignored)) continue;
    if (is_run(entry->path()))
      found.push_back(entry->path());  // its checkpoints are many files and no runs
    else
      search(entry->path(), found);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    detail::fail_errno(place, "search the folder", error.value());
}

fs::path tidy(const fs::path& folder) {
  fs::path name = folder.lexically_normal();
  if (!name.has_filename()) name = name.parent_path();  // "run/" is "run"
  return name.empty() ? fs::path(".") : name;
}

void find_at(const fs::path& place, std::vector<fs::path>& found) {
  const size_t before = found.size();
  if (place.filename() == kRecordName && is_run(place.parent_path())) {
    found.push_back(place.parent_path());
  } else if (is_run(place)) {
    found.push_back(place);
  } else {
    const auto facts = file_facts(place);
    LETHE_CHECK(
        DataError,
        facts && facts->is_folder,
        "runs: '{}' must be the folder of a run or a folder of such, got {}; check the path",
        place.string(),
        facts ? "a file" : "nothing there");
    search(place, found);
    std::sort(found.begin() + static_cast<int64_t>(before), found.end());
  }
  LETHE_CHECK(DataError,
              found.size() > before,
              "runs: '{}' must hold a run ({}) at some depth, got none; lethe train writes one",
              place.string(),
              kRecordName);
}

/// The value at a path of keys; null where one is missing.
Object value_at(const Object& object, std::initializer_list<const char*> keys) {
  const Object* at = &object;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return *at;
}

std::optional<int64_t> whole(const Object& value) {
  if (!value.is_number()) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<double> last_value(const std::vector<Object>& entries, const char* field) {
  const std::vector<Point> points = series(entries, field);
  if (points.empty()) return std::nullopt;
  return points.back().value;
}

std::vector<double> sorted_values(const std::vector<Object>& entries, const char* field) {
  std::vector<double> values;
  for (const Point& point : series(entries, field)) values.push_back(point.value);
  std::sort(values.begin(), values.end());
  return values;
}

std::optional<double> median(const std::vector<double>& sorted) {
  if (sorted.empty()) return std::nullopt;
  const size_t middle = sorted.size() / 2;
  if (sorted.size() % 2 == 1) return sorted[middle];
  return (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string status_of(const fs::path& folder,
                      const RunRecord& record,
                      const std::optional<Sessions>& sessions) {
  if (sessions) {
    if (sessions->reason) return *sessions->reason;
    return folder_lock_holder(folder) ? "running" : "killed";
  }
  const Object reason = value_at(record.end, {"reason"});
  return reason.is_string() ? reason.get<std::string>() : "unfinished";
}

}  // namespace

std::vector<fs::path> find_runs(std::span<const fs::path> places) {
  std::vector<fs::path> found;
  for (const fs::path& place : places) find_at(place, found);
  std::vector<fs::path> runs;
  std::set<fs::path> seen;
  for (const fs::path& folder : found)
    if (seen.insert(tidy(folder)).second) runs.push_back(tidy(folder));
  return runs;
}

RunSummary summarize_run(const fs::path& folder) {
  const RunRecord record = read_run_record(folder / kRecordName);
  const std::optional<Sessions> sessions = read_sessions(folder / "sessions.jsonl");
  RunSummary run{.folder = folder, .status = status_of(folder, record, sessions)};
  if (!record.steps.empty()) run.steps = whole(record.steps.back()["step"]).value_or(0);
  run.steps_asked = whole(value_at(record.start, {"settings", "train_iters"}));
  if (!run.steps_asked) run.steps_asked = whole(value_at(record.start, {"train", "train_iters"}));
  run.loss = last_value(record.steps, "loss");
  run.valid_loss = last_value(record.evals, "valid_loss");
  run.tokens_per_second = median(sorted_values(record.steps, "tokens_per_second"));
  const std::vector<double> peaks = sorted_values(record.steps, "peak_bytes");
  if (!peaks.empty()) run.peak_bytes = static_cast<int64_t>(peaks.back());
  run.parameters = whole(value_at(record.start, {"parameters"}));
  if (sessions) run.started = sessions->started;
  return run;
}

std::vector<RunSummary> summarize_runs(std::span<const fs::path> folders) {
  std::vector<RunSummary> runs;
  for (const fs::path& folder : folders) {
    try {
      runs.push_back(summarize_run(folder));
    } catch (const DataError& error) {
      runs.push_back({.folder = folder, .status = "unreadable", .problem = error.what()});
    }
  }
  return runs;
}

}  // namespace lethe::report
