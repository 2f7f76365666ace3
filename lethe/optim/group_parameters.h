#pragma once

#include <cstdint>
#include <vector>

#include "lethe/core/param_store.h"
#include "lethe/optim/groups.h"

namespace lethe {

/// Which rule updates what (model spec 12): AdamW everything, or the hybrid of Muon for the
/// matrices that the contract table names and AdamW for the rest.
enum class OptimizerKind : uint8_t { AdamW, Muon };

/// Weight decay of the three groups: model spec 12 has 0.1, 0.1 and, as the default of Lethe, 0;
/// the technical report decays vectors too.
struct WeightDecays {
  double muon_matrices = 0.1;   // every parameter of a Muon group
  double adamw_matrices = 0.1;  // AdamW parameters of two or more dimensions
  double adamw_vectors = 0;     // AdamW parameters of at most one dimension
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::AdamW;
  WeightDecays weight_decays;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_eps = 1e-20;
  double muon_momentum = 0.95;
  double muon_update_rms = 0.18;
  bool muon_split_heads = false;  // each head of wq_b is a matrix of its own
};

/// Groups of the store's trained parameters (those that require a gradient), in this order, empty
/// ones left out: Muon matrices, AdamW matrices, AdamW vectors; inside each the store's order.
/// Works on parameters of any device: only check(groups) asks for data.
std::vector<ParameterGroup> group_parameters(const ParamStore& params,
                                             const OptimizerSettings& settings);

}  // namespace lethe
