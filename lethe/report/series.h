#pragma once

#include <string_view>
#include <vector>

#include "lethe/report/run_record.h"

namespace lethe::report {

struct Point {
  double step;
  double value;
};

/// The most points that one line of a chart is drawn with.
inline constexpr size_t kMaxPoints = 1000;

/// The values of one field over the steps; entries without a number there are left out.
std::vector<Point> series(const std::vector<RunRecord::Object>& entries, std::string_view field);

/// What stands for a run of points that are drawn as one.
enum class Keep { Mean, Largest };

/// At most `limit` points: each of equally long runs becomes one point at its last step. limit
/// >= 1.
std::vector<Point> thin(const std::vector<Point>& points, size_t limit, Keep keep);

/// All charts of the page that have data, as page.js reads them.
nlohmann::ordered_json charts(const RunRecord& record);

}  // namespace lethe::report
