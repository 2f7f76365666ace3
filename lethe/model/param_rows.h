#pragma once

#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"

namespace lethe {

/// The contract table's rows for this model, as the parameter store takes them; same order.
std::vector<ParamRow> param_rows(const ModelConfig& config);

}  // namespace lethe
