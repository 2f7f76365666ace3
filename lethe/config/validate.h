#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/model_config.h"

namespace lethe {

/// One rule among the fields of a model (model spec 15 and 1.1).
struct ModelRule {
  std::string_view id;    // "M1" ...
  std::string_view text;  // what must hold
};

/// All rules, in order.
[[nodiscard]] std::span<const ModelRule> model_rules();

/// Every violated rule as `<where> [Mn]: what must hold, got value; way out`. Empty = valid.
[[nodiscard]] std::vector<std::string> model_violations(const ModelConfig& config,
                                                        std::string_view where);

/// Throws one ConfigError that lists all violations, one a line.
void validate(const ModelConfig& config, std::string_view where = "model");

}  // namespace lethe
