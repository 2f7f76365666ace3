#include "lethe/report/runs_text.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lethe/base/format.h"

namespace lethe::report {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

constexpr const char* kAbsent = "-";

/// Rows of equally many cells, padded: the first `num_left` columns to the right, the others to the
/// left. The first row is the head.
std::string table(const std::vector<Cells>& rows, size_t num_left) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < num_left ? fmt::format("{:<{}}", row[i], widths[i])
                           : fmt::format("{:>{}}", row[i], widths[i]);
      line += "  ";
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string status_text(const std::string& status) {
  if (status == "signal") return "stopped by signal";
  if (status == "max-seconds") return "stopped by max-seconds";
  if (status == "exit-interval") return "stopped by exit-interval";
  if (status == "numeric-error") return "numeric error";
  return status;
}

std::string steps_text(const RunSummary& run) {
  return run.steps_asked ? fmt::format("{}/{}", run.steps, *run.steps_asked)
                         : fmt::format("{}", run.steps);
}

template <class Value, class Text>
std::string text_of(const std::optional<Value>& value, Text text) {
  return value ? text(*value) : kAbsent;
}

std::string loss_text(const std::optional<double>& loss) {
  return text_of(loss, [](double x) { return fmt::format("{:.4f}", x); });
}

std::string time_text(double seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

Cells cells_of(const RunSummary& run) {
  return {run.folder.string(),
          status_text(run.status),
          text_of(run.started, time_text),
          steps_text(run),
          loss_text(run.loss),
          loss_text(run.valid_loss),
          text_of(run.tokens_per_second, [](double x) { return fmt::format("{:.0f}", x); }),
          text_of(run.peak_bytes, bytes_text),
          text_of(run.parameters, [](int64_t x) { return count_text(static_cast<double>(x)); })};
}

template <class Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Value>
Json json_of(const std::vector<std::optional<Value>>& values) {
  Json out = Json::array();
  for (const auto& value : values) out.push_back(json_of(value));
  return out;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// 'A' for the first run, and so on: folders are too wide for the head of a column.
std::string run_name(size_t index) {
  constexpr size_t kLetters = 26;
  return index < kLetters ? std::string(1, static_cast<char>('A' + index))
                          : fmt::format("#{}", index + 1);
}

std::string settings_part(const RunComparison& comparison) {
  if (comparison.differences.empty()) return "settings: all equal\n";
  std::vector<Cells> rows{{"setting"}};
  for (size_t i = 0; i < comparison.runs.size(); ++i) rows.front().push_back(run_name(i));
  for (const auto& difference : comparison.differences) {
    Cells row{difference.key};
    for (const auto& value : difference.values) row.push_back(value.value_or(kAbsent));
    rows.push_back(std::move(row));
  }
  return table(rows, 1);
}

bool has_valid_loss(const RunComparison& comparison) {
  return std::any_of(comparison.rows.begin(), comparison.rows.end(), [](const auto& row) {
    return std::any_of(row.valid_losses.begin(), row.valid_losses.end(), [](const auto& v) {
      return v.has_value();
    });
  });
}

std::string loss_part(const RunComparison& comparison) {
  const bool with_valid = has_valid_loss(comparison);
  Cells head{"step"};
  for (size_t i = 0; i < comparison.runs.size(); ++i) head.push_back("loss " + run_name(i));
  for (size_t i = 0; with_valid && i < comparison.runs.size(); ++i)
    head.push_back("valid " + run_name(i));
  std::vector<Cells> rows{std::move(head)};
  for (const auto& row : comparison.rows) {
    Cells cells{fmt::format("{}", row.step)};
    for (const auto& loss : row.losses) cells.push_back(loss_text(loss));
    for (size_t i = 0; with_valid && i < row.valid_losses.size(); ++i)
      cells.push_back(loss_text(row.valid_losses[i]));
    rows.push_back(std::move(cells));
  }
  return table(rows, 0);
}

std::string parting_part(const RunComparison& comparison) {
  if (comparison.num_common == 0) return "no step that all runs recorded\n";
  if (!comparison.first_different_step)
    return fmt::format("identical up to step {}, the last common one\n",
                       *comparison.last_equal_step);
  if (!comparison.last_equal_step)
    return fmt::format("different from step {} on, the first common one\n",
                       *comparison.first_different_step);
  return fmt::format("identical up to step {}, first different at step {}\n",
                     *comparison.last_equal_step,
                     *comparison.first_different_step);
}

}  // namespace

std::string runs_text(std::span<const RunSummary> runs) {
  std::vector<Cells> rows{{"run",
                           "status",
                           "started (UTC)",
                           "steps",
                           "loss",
                           "valid loss",
                           "tok/s",
                           "peak",
                           "parameters"}};
  std::string problems;
  for (const RunSummary& run : runs) {
    rows.push_back(cells_of(run));
    if (!run.problem.empty()) problems += fmt::format("{}\n", run.problem);
  }
  return table(rows, 3) + problems;
}

std::string runs_json(std::span<const RunSummary> runs) {
  Json out = Json::array();
  for (const RunSummary& run : runs) {
    out.push_back({{"folder", run.folder.string()},
                   {"status", run.status},
                   {"problem", run.problem.empty() ? Json(nullptr) : Json(run.problem)},
                   {"steps", run.steps},
                   {"steps_asked", json_of(run.steps_asked)},
                   {"loss", json_of(run.loss)},
                   {"valid_loss", json_of(run.valid_loss)},
                   {"tokens_per_second", json_of(run.tokens_per_second)},
                   {"peak_bytes", json_of(run.peak_bytes)},
                   {"parameters", json_of(run.parameters)},
                   {"started", json_of(run.started)}});
  }
  return dumped(out);
}

std::string comparison_text(const RunComparison& comparison) {
  std::string out;
  for (size_t i = 0; i < comparison.runs.size(); ++i)
    out += fmt::format("{}  {}\n", run_name(i), comparison.runs[i].string());
  out += "\n" + settings_part(comparison) + "\n";
  if (!comparison.rows.empty()) out += loss_part(comparison) + "\n";
  return out + parting_part(comparison);
}

std::string comparison_json(const RunComparison& comparison) {
  Json out{{"runs", Json::array()},
           {"differences", Json::array()},
           {"rows", Json::array()},
           {"num_common", comparison.num_common},
           {"last_equal_step", json_of(comparison.last_equal_step)},
           {"first_different_step", json_of(comparison.first_different_step)}};
  for (const auto& run : comparison.runs) out["runs"].push_back(run.string());
  for (const auto& difference : comparison.differences)
    out["differences"].push_back({{"key", difference.key}, {"values", json_of(difference.values)}});
  for (const auto& row : comparison.rows)
    out["rows"].push_back({{"step", row.step},
                           {"losses", json_of(row.losses)},
                           {"valid_losses", json_of(row.valid_losses)}});
  return dumped(out);
}

}  // namespace lethe::report
