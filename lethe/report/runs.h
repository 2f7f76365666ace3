#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lethe::report {

/// What `lethe runs` tells about one run. An absent value was not recorded.
struct RunSummary {
  std::filesystem::path folder;
  /// "running"; "killed" (its process is gone without a word); why it stopped: "finished",
  /// "signal", "max-seconds", "exit-interval", "numeric-error", "error"; "unfinished" (a record
  /// without an end, and no sessions.jsonl to tell more); "unreadable".
  std::string status;
  std::string problem;  // of an unreadable run: why
  int64_t steps = 0;    // the last one recorded
  std::optional<int64_t> steps_asked;
  std::optional<double> loss;               // the last one, nats
  std::optional<double> valid_loss;         // the last one, nats
  std::optional<double> tokens_per_second;  // median over the steps
  std::optional<int64_t> peak_bytes;        // the highest of the steps
  std::optional<int64_t> parameters;
  std::optional<double> started;  // seconds since 1970
};

/// The folders of the runs at or below each place, each once: in the order of the places, those of
/// one place in the order of their names. A place is the folder of a run (it holds run.jsonl), its
/// run.jsonl, or a folder to search; it may be a link, but the search follows no links to folders
/// and leaves out folders that may not be read. DataError: a place is missing, cannot be read or
/// holds no run.
[[nodiscard]] std::vector<std::filesystem::path> find_runs(
    std::span<const std::filesystem::path> places);

/// Reads FOLDER/run.jsonl (html_report.h has the format; a later line of a step replaces an earlier
/// one) and, for status and start time, FOLDER/sessions.jsonl and the lock of the folder. DataError
/// with file and line where one is not what it should be.
[[nodiscard]] RunSummary summarize_run(const std::filesystem::path& folder);

/// summarize_run of each; a run that cannot be read becomes a row with the status "unreadable".
[[nodiscard]] std::vector<RunSummary> summarize_runs(
    std::span<const std::filesystem::path> folders);

/// Several runs side by side; every `values` has one entry per run.
struct RunComparison {
  /// A setting with different values; keys of objects inside objects are joined by '.'.
  struct Difference {
    std::string key;
    std::vector<std::optional<std::string>> values;  // as text; absent: the run does not have it
  };

  struct Row {
    int64_t step = 0;
    std::vector<std::optional<double>> losses;
    std::vector<std::optional<double>> valid_losses;
  };

  std::vector<std::filesystem::path> runs;
  std::vector<Difference> differences;
  std::vector<Row> rows;   // of common steps, the first and the last among them
  int64_t num_common = 0;  // steps that all runs recorded
  std::optional<int64_t> first_different_step;  // common step whose losses are not equal in bits
  std::optional<int64_t> last_equal_step;       // the common step before it, or the last
};

/// The most rows of a comparison.
inline constexpr size_t kMaxComparedSteps = 12;

/// folders: >= 2 runs. Settings are the facts of the start events: `settings` where all runs have
/// it, else `model` and `train`, and the single facts beside them. ConfigError: fewer than two
/// runs; DataError as summarize_run.
[[nodiscard]] RunComparison compare_runs(std::span<const std::filesystem::path> folders);

}  // namespace lethe::report
