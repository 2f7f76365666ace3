#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/model_config.h"

namespace lethe {

/// A named model shape: flash, pro (the releases, model spec 1.1-1.2), tiny (the byte-level model
/// of the first run, the shape of model spec 15's tiny-A), flash-4layer (the first layers of Flash,
/// ratios 0 0 4 128, without MTP). Throws ConfigError naming the nearest recipe.
[[nodiscard]] ModelConfig recipe(std::string_view name);

[[nodiscard]] const std::vector<std::string>& recipe_names();

}  // namespace lethe
