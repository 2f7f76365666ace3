#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/plan/activation_bytes.h"
#include "lethe/plan/recompute_plan.h"

// Predicted bytes of what save units keep inside layers that are recomputed whole (spec 3 R6.35).
// Pure functions.
namespace lethe {

/// What the calls of one name keep in one layer and micro-batch: their results, and what they save
/// besides their arguments (recompute/kept_call.h). What is no part of the three below is a choice,
/// which stays in every plan.
struct KeptBytes {
  std::string call;    // "lethe::experts"
  int64_t bytes = 0;   // what RegionReport::kept measures
  int64_t inside = 0;  // of these: the layer would free them
  int64_t output = 0;  // of these: the layer's output
  int64_t added = 0;   // of these: nobody would hold them until backward without the unit
  bool operator==(const KeptBytes&) const = default;
};

/// What one save unit keeps in one layer and micro-batch.
struct UnitBytes {
  std::string unit;  // "experts"
  std::vector<KeptBytes> calls;
  bool operator==(const UnitBytes&) const = default;

  [[nodiscard]] int64_t bytes() const;
};

/// One row for each save unit of the layer that it has calls of, in the order in which DeepSeek-V4
/// declares them.
[[nodiscard]] std::vector<UnitBytes> unit_bytes(const ModelConfig& model,
                                                const ActivationSizes& sizes,
                                                const OperatorFacts& facts,
                                                const LayerPlan& layer);

}  // namespace lethe
