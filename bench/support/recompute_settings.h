#pragma once

#include <string>
#include <vector>

#include "lethe/plan/make_plan.h"

namespace lethe::bench {

/// A way to recompute that people choose, by the flags of `lethe train`.
struct RecomputeSetting {
  std::string name;   // "csa+mhc"
  std::string flags;  // "--recompute-csa-attention --mhc-recompute"
  RecomputeConfig config;
  std::vector<std::string> save_units = {};
  bool swap = false;
};

/// From nothing to whole layers; "none" first.
[[nodiscard]] const std::vector<RecomputeSetting>& recompute_settings();

/// The plan of the setting of this name for the whole model on one rank. Throws ConfigError naming
/// the valid ones.
[[nodiscard]] RecomputePlan plan_of(const std::string& name,
                                    const ModelConfig& model,
                                    bool indexer_loss);

}  // namespace lethe::bench
