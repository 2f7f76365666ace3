#include "lethe/base/format.h"

#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace lethe {
namespace {

// Three significant digits; 0.5 of the last printed digit decides, so that 999.7 moves to the next
// unit.
std::string scaled(double value, double step, std::span<const std::string_view> units) {
  size_t unit = 0;
  double magnitude = std::abs(value);
  while (unit + 1 < units.size() && magnitude >= (unit == 0 ? step : step - 0.5)) {
    magnitude /= step;
    ++unit;
  }
  const int decimals = unit == 0 || magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{}{:.{}f}{}", value < 0 ? "-" : "", magnitude, decimals, units[unit]);
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{
      " B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 9.995) return fmt::format("{:.2f}s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const double whole = std::floor(seconds + 0.05);
  const double minutes = std::floor(whole / 60);
  const double hours = std::floor(minutes / 60);
  if (minutes < 60) return fmt::format("{:.0f}m {:02.0f}s", minutes, whole - minutes * 60);
  if (hours < 24) return fmt::format("{:.0f}h {:02.0f}m", hours, minutes - hours * 60);
  const double days = std::floor(hours / 24);
  return fmt::format("{:.0f}d {:02.0f}h", days, hours - days * 24);
}

std::string count_text(double count) {
  if (!std::isfinite(count)) return "?";
  if (std::abs(count) < 999.5)
    return fmt::format("{:.{}f}", count, count == std::floor(count) ? 0 : 1);
  static constexpr std::array<std::string_view, 5> kUnits{"", "k", "M", "B", "T"};
  return scaled(count, 1000, kUnits);
}

}  // namespace lethe
