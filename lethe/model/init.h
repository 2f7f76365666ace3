#pragma once

#include <cstdint>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"

namespace lethe {

/// Writes every parameter and buffer of a model trained from scratch (model spec 12.2): N(0,
/// init_range) for matrices, 1 for norms, 0 for sinks, ape, mHC bases and router biases, init_alpha
/// for the mHC alphas and head scales, and (id * k + j) mod E for the hash tables. Bits depend on
/// the seed and the parameter's name only, not on threads or order.
void initialize(const ModelConfig& config, ParamStore& store, uint64_t seed);

}  // namespace lethe
