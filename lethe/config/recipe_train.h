#pragma once

#include <string_view>
#include <vector>

#include "lethe/config/settings_value.h"

namespace lethe {

/// What a recipe says about training, beside the shape that recipe(name) gives; empty where it says
/// nothing. A value of a later source replaces each of them.
[[nodiscard]] std::vector<GivenSetting> recipe_train_defaults(std::string_view recipe);

}  // namespace lethe
