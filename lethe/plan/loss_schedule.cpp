#include "lethe/plan/loss_schedule.h"

#include <cmath>
#include <string>

#include "lethe/base/error.h"

namespace lethe {

void check(const LossSchedule& s) {
  std::string wrong;
  const auto expect = [&wrong](bool ok, std::string text) {
    if (!ok) wrong += (wrong.empty() ? "" : "; ") + text;
  };
  expect(std::isfinite(s.mtp_weight) && s.mtp_weight >= 0,
         fmt::format("the MTP weight must be a number >= 0, got {}", s.mtp_weight));
  expect(std::isfinite(s.mtp_weight_decayed) && s.mtp_weight_decayed >= 0,
         fmt::format("the decayed MTP weight must be a number >= 0, got {}", s.mtp_weight_decayed));
  expect(!s.first_decay_step || *s.first_decay_step >= 0,
         fmt::format("the first decay step must be >= 0, got {}", s.first_decay_step.value_or(0)));
  LETHE_CHECK(ConfigError, wrong.empty(), "loss schedule: {}; correct these settings", wrong);
}

double mtp_weight(const LossSchedule& s, int64_t step) {
  return s.first_decay_step && step >= *s.first_decay_step ? s.mtp_weight_decayed : s.mtp_weight;
}

}  // namespace lethe
