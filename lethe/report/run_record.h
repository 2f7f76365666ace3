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

/// Throws DataError as make_report says.
RunRecord read_run_record(const std::filesystem::path& path);

}  // namespace lethe::report
