#pragma once

#include <string_view>

namespace lethe::report {

/// The parts of the page that do not depend on the run; generated at build time from the files
/// beside this header and from Chart.js (cmake/LetheEmbed.cmake).
extern const std::string_view kChartJs;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;

}  // namespace lethe::report
