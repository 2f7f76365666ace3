#pragma once

#include <cstdint>
#include <optional>

#include "lethe/config/train_config.h"

namespace lethe {

/// Linear warm-up to the peak, then a fall to a floor (model spec 12). Learning rates per update,
/// steps in updates.
struct LearningRateSchedule {
  double peak = 0;           // > 0
  double minimum = 0;        // reached at the last decay step, kept beyond it; in [0, peak]
  int64_t warmup_steps = 0;  // in [0, end()]; the last warm-up step already runs at `peak`
  int64_t total_steps = 0;   // >= 1
  DecayStyle style = DecayStyle::Cosine;
  int64_t decay_steps = 0;      // warm-up and decay together end here; 0 = total_steps
  int64_t wsd_decay_steps = 0;  // Wsd only: length of the decay, in [1, end() - warm-up]
  WsdDecayStyle wsd_style = WsdDecayStyle::Exponential;

  /// Number of the first step at the minimum for good, plus one (except for Constant).
  [[nodiscard]] int64_t end() const { return decay_steps > 0 ? decay_steps : total_steps; }

  bool operator==(const LearningRateSchedule&) const = default;
};

/// Throws one ConfigError that names every field outside its range.
void check(const LearningRateSchedule& schedule);

/// Learning rate of update `step` (0 = the first). A pure function: a resumed run needs only its
/// step. step >= 0; the schedule must satisfy check().
///   warm-up   peak * (step + 1) / warmup_steps                           step < warmup_steps
///   after it  minimum + (peak - minimum) * f(p); f = 1 - p (linear), (1 + cos(pi p)) / 2 (cosine),
///             2 * 0.5^p - 1 (exponential)
/// p runs from 0 at the last step of the peak to 1 at step end() - 1: from the end of the warm-up
/// for linear and cosine, over the last wsd_decay_steps for Wsd. Constant stays at the peak.
[[nodiscard]] double learning_rate(const LearningRateSchedule& schedule, int64_t step);

/// The first step below the peak that is not warm-up; nothing for Constant. What changes "from the
/// start of the learning-rate decay" (model spec 10) changes here.
[[nodiscard]] std::optional<int64_t> first_decay_step(const LearningRateSchedule& schedule);

}  // namespace lethe
