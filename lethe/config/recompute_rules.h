#pragma once

#include <span>

#include "lethe/config/run_rules.h"

namespace lethe {

/// The rules between the settings of recompute, in the order they are checked (command-line spec
/// 7.4, spec 3 4.4). Those that need the parts of the model are the plan's (plan/make_plan.h).
[[nodiscard]] std::span<const RunRule> recompute_rules();

}  // namespace lethe
