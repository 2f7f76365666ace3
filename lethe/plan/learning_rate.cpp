#include "lethe/plan/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "lethe/base/error.h"

namespace lethe {

void check(const LearningRateSchedule& s) {
  std::string wrong;
  const auto expect = [&wrong](bool ok, std::string text) {
    if (!ok) wrong += (wrong.empty() ? "" : "; ") + text;
  };
  expect(std::isfinite(s.peak) && s.peak > 0,
         fmt::format("the peak must be a number > 0, got {}", s.peak));
  expect(s.minimum >= 0 && s.minimum <= s.peak,
         fmt::format("the minimum must be in [0, peak = {}], got {}", s.peak, s.minimum));
  expect(s.total_steps >= 1, fmt::format("the steps must be >= 1, got {}", s.total_steps));
  expect(
      s.warmup_steps >= 0 && s.warmup_steps <= s.total_steps,
      fmt::format("the warm-up must be in [0, steps = {}], got {}", s.total_steps, s.warmup_steps));
  LETHE_CHECK(ConfigError, wrong.empty(), "learning rate: {}; correct these settings", wrong);
}

double learning_rate(const LearningRateSchedule& s, int64_t step) {
  if (step < s.warmup_steps)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  const int64_t first = std::max<int64_t>(s.warmup_steps - 1, 0), last = s.total_steps - 1;
  if (step > last) return s.minimum;
  if (step <= first) return s.peak;
  const double p = static_cast<double>(step - first) / static_cast<double>(last - first);
  return s.minimum + (s.peak - s.minimum) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

}  // namespace lethe
