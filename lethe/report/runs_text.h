#pragma once

#include <span>
#include <string>

#include "lethe/report/runs.h"

namespace lethe::report {

/// A table with a row per run, and below it what is wrong with those that cannot be read. Times are
/// UTC.
[[nodiscard]] std::string runs_text(std::span<const RunSummary> runs);

/// A JSON array with an object per run: the fields of RunSummary, null where absent. Ends with a
/// line break.
[[nodiscard]] std::string runs_json(std::span<const RunSummary> runs);

/// The settings that differ, the losses step by step, and where the losses part.
[[nodiscard]] std::string comparison_text(const RunComparison& comparison);

/// A JSON object with the fields of RunComparison. Ends with a line break.
[[nodiscard]] std::string comparison_json(const RunComparison& comparison);

}  // namespace lethe::report
