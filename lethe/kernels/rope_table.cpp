#include "lethe/kernels/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lethe/base/error.h"

namespace lethe::kernels {
namespace {

void check(int64_t rope_dims, double theta, const std::optional<RopeYarn>& yarn) {
  LETHE_CHECK(
      ConfigError,
      rope_dims > 0 && rope_dims % 2 == 0,
      "rope_inv_freq: rope_dims must be even and positive, got {}; it counts channels, not pairs",
      rope_dims);
  LETHE_CHECK(ConfigError,
              theta > 1,
              "rope_inv_freq: theta must be > 1, got {}; the hub's are 10000 and 160000",
              theta);
  if (!yarn) return;
  LETHE_CHECK(ConfigError,
              yarn->factor > 0 && yarn->original_max_positions > 0 && yarn->beta_fast > 0 &&
                  yarn->beta_slow > 0,
              "rope_inv_freq: factor, original_max_positions, beta_fast and beta_slow must be > 0, "
              "got {}, {}, {}, {}; "
              "pass no yarn to leave the table as it is",
              yarn->factor,
              yarn->original_max_positions,
              yarn->beta_fast,
              yarn->beta_slow);
}

// The pair index whose wave turns `rotations` times over the original length.
double pair_of(double rotations, int64_t rope_dims, double theta, int64_t original_max_positions) {
  const double length = static_cast<double>(original_max_positions);
  return static_cast<double>(rope_dims) * std::log(length / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

void extend(std::vector<float>& table, int64_t rope_dims, double theta, const RopeYarn& yarn) {
  double low = std::floor(pair_of(yarn.beta_fast, rope_dims, theta, yarn.original_max_positions));
  double high = std::ceil(pair_of(yarn.beta_slow, rope_dims, theta, yarn.original_max_positions));
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope_dims - 1));
  if (low == high) high += 0.001;
  const float factor = static_cast<float>(yarn.factor), from = static_cast<float>(low);
  const float width = static_cast<float>(high - low);
  for (size_t m = 0; m < table.size(); ++m) {
    const float ramp = std::clamp((static_cast<float>(m) - from) / width, 0.0F, 1.0F);
    const float s = 1.0F - ramp;
    table[m] = table[m] / factor * (1.0F - s) + table[m] * s;
  }
}

}  // namespace

std::vector<float> rope_inv_freq(int64_t rope_dims,
                                 double theta,
                                 const std::optional<RopeYarn>& yarn) {
  check(rope_dims, theta, yarn);
  std::vector<float> table(static_cast<size_t>(rope_dims / 2));
  for (size_t m = 0; m < table.size(); ++m) {
    // 2m / rope_dims is itself a float32 step in the official code.
    const float exponent = static_cast<float>(2 * m) / static_cast<float>(rope_dims);
    table[m] = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  if (yarn) extend(table, rope_dims, theta, *yarn);
  return table;
}

}  // namespace lethe::kernels
