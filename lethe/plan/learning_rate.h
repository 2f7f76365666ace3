#pragma once

#include <cstdint>

namespace lethe {

/// Linear warm-up, then half a cosine down to a floor (model spec 12). Learning rates per update,
/// steps in updates.
struct LearningRateSchedule {
  double peak = 0;     // > 0
  double minimum = 0;  // reached at the last step after the warm-up, kept beyond it; in [0, peak]
  int64_t warmup_steps = 0;  // in [0, total_steps]; the last warm-up step already runs at `peak`
  int64_t total_steps = 0;   // >= 1

  bool operator==(const LearningRateSchedule&) const = default;
};

/// Throws one ConfigError that names every field outside its range.
void check(const LearningRateSchedule& schedule);

/// Learning rate of update `step` (0 = the first). A pure function: a resumed run needs only its
/// step.
///   warm-up   peak * (step + 1) / warmup_steps                            step < warmup_steps
///   cosine    minimum + (peak - minimum) * (1 + cos(pi * p)) / 2,  p from 0 (end of warm-up) to 1
///   (last)
/// step >= 0; the schedule must satisfy check().
[[nodiscard]] double learning_rate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace lethe
