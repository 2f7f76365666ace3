#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

namespace lethe::report {

/// A run record in memory (format: html_report.h). Objects keep the order of their fields.
struct RunRecord {
  using Object = nlohmann::ordered_json;
  Object start;
  Object end;  // null where the run left none
  std::vector<Object> steps;
  std::vector<Object> evals;
  bool cut_off = false;  // the last line was incomplete
};

/// Of a step that is there twice, since a run was killed and went on from a checkpoint before it,
/// the later line counts, and what the killed process had written from there on is left out.
/// Throws DataError as make_report says.
RunRecord read_run_record(const std::filesystem::path& path);

}  // namespace lethe::report
