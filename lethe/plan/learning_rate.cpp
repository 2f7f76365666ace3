#include "lethe/plan/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// What is left of the way from the peak to the minimum at p in [0, 1]. Each f(1) is exactly 0.
double linear(double p) {
  return 1 - p;
}

double exponential(double p) {
  return 2 * std::pow(0.5, p) - 1;
}

double cosine(const LearningRateSchedule& s, double p) {
  return s.minimum + (s.peak - s.minimum) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

double scaled(const LearningRateSchedule& s, double left) {
  return s.minimum + (s.peak - s.minimum) * left;
}

double decayed(const LearningRateSchedule& s, double p) {
  switch (s.style) {
    case DecayStyle::Constant:
      return s.peak;
    case DecayStyle::Linear:
      return scaled(s, linear(p));
    case DecayStyle::Cosine:
      return cosine(s, p);
    case DecayStyle::Wsd:
      break;
  }
  switch (s.wsd_style) {
    case WsdDecayStyle::Linear:
      return scaled(s, linear(p));
    case WsdDecayStyle::Cosine:
      return cosine(s, p);
    case WsdDecayStyle::Exponential:
      break;
  }
  return scaled(s, exponential(p));
}

// The last step at the peak.
int64_t last_peak_step(const LearningRateSchedule& s) {
  if (s.style == DecayStyle::Wsd) return s.end() - 1 - s.wsd_decay_steps;
  return std::max<int64_t>(s.warmup_steps - 1, 0);
}

}  // namespace

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
  expect(s.decay_steps >= 0,
         fmt::format("the decay steps must be >= 1, or 0 for all steps, got {}", s.decay_steps));
  expect(s.warmup_steps >= 0 && s.warmup_steps <= s.end(),
         fmt::format("the warm-up must be in [0, {} = {}], got {}",
                     s.decay_steps > 0 ? "decay steps" : "steps",
                     s.end(),
                     s.warmup_steps));
  if (s.style == DecayStyle::Wsd) {
    const int64_t longest = s.end() - std::max<int64_t>(s.warmup_steps, 1);
    expect(s.wsd_decay_steps >= 1 && s.wsd_decay_steps <= longest,
           fmt::format("the WSD decay must be in [1, {}], the steps after the first at the peak, "
                       "got {}",
                       longest,
                       s.wsd_decay_steps));
  }
  LETHE_CHECK(ConfigError, wrong.empty(), "learning rate: {}; correct these settings", wrong);
}

double learning_rate(const LearningRateSchedule& s, int64_t step) {
  if (step < s.warmup_steps)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  if (s.style == DecayStyle::Constant) return s.peak;
  const int64_t first = last_peak_step(s), last = s.end() - 1;
  if (step > last) return s.minimum;
  if (step <= first) return s.peak;
  const double p = static_cast<double>(step - first) / static_cast<double>(last - first);
  return decayed(s, p);
}

std::optional<int64_t> first_decay_step(const LearningRateSchedule& s) {
  if (s.style == DecayStyle::Constant) return std::nullopt;
  return last_peak_step(s) + 1;
}

}  // namespace lethe
