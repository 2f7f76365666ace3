#pragma once

#include <cstdint>
#include <optional>

namespace lethe {

/// Weight of the MTP losses over a run (model spec 10): one value until the learning rate begins to
/// fall, another from then on.
struct LossSchedule {
  double mtp_weight = 0.3;                  // >= 0
  double mtp_weight_decayed = 0.1;          // >= 0
  std::optional<int64_t> first_decay_step;  // of plan/learning_rate.h; nothing = never

  bool operator==(const LossSchedule&) const = default;
};

/// Throws one ConfigError that names every field outside its range.
void check(const LossSchedule& schedule);

/// lambda of update `step` (0 = the first). A pure function.
[[nodiscard]] double mtp_weight(const LossSchedule& schedule, int64_t step);

}  // namespace lethe
