#pragma once

#include <cstdint>
#include <string>

#include "bench/support/model_step.h"

namespace lethe::bench {

/// What a step with everything discarded (`whole`) adds to one that stores all: against the forward
/// of that one, and against the forward of the layers at this machine's peaks. Each of `rounds`
/// rounds takes both steps and the peaks within seconds of each other and forms its own ratios: on
/// a shared machine the peaks move as much as the steps. `seq`: tokens of a step. A paragraph of
/// medians, with quartiles.
[[nodiscard]] std::string replay_cost(ModelStep& step,
                                      const RecomputePlan& whole,
                                      int64_t seq,
                                      int64_t rounds);

}  // namespace lethe::bench
