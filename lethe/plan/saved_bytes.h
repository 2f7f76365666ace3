#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/plan/activation_bytes.h"
#include "lethe/plan/kept_bytes.h"
#include "lethe/plan/make_plan.h"
#include "lethe/plan/recompute_plan.h"

// Predicted bytes of regions (spec 3 3.2, 7.4, R6.35). Pure functions.
namespace lethe {

/// What one region saves between forward and backward.
struct RegionBytes {
  SubgraphId subgraph{};
  int64_t released = 0;              // outputs that somebody would save
  int64_t inside = 0;                // what save units keep is no part of it
  int64_t retained = 0;              // outputs that stay
  std::vector<std::string> holders;  // nodes that save a retained output: "attn.sparse"
  bool nested = false;               // its outputs are values inside of the layer's region
  bool operator==(const RegionBytes&) const = default;

  [[nodiscard]] int64_t freed() const { return released + inside; }
};

/// Nodes that save an output of the region that the plan does not release: whatever the region
/// forgets, these keep its output. Empty where there is none, or no such region.
[[nodiscard]] std::vector<std::string> output_holders(const OperatorFacts& facts,
                                                      const LayerPlan& layer,
                                                      SubgraphId region);

/// One row for each enabled region, in restore order, the whole layer last. Bytes that regions
/// inside of the layer's save count for these; its own row has the rest, less what its save units
/// keep.
[[nodiscard]] std::vector<RegionBytes> region_bytes(const ModelConfig& model,
                                                    const ActivationSizes& sizes,
                                                    const OperatorFacts& facts,
                                                    const LayerPlan& layer);

/// What each region of a stage frees in one micro-batch, by its name: "L3.mb0.sparse". Exact where
/// every parameter trains: a value without a gradient is saved by nobody.
[[nodiscard]] std::map<std::string, int64_t> predicted_bytes(const PlanSubject& subject,
                                                             const RecomputePlan& plan,
                                                             const MicroBatchShape& shape,
                                                             int64_t micro_batch);

/// What the save units of each whole layer keep in one micro-batch, by the name of its region:
/// "L3.mb0.layer". Layers that keep nothing are left out. Exact as predicted_bytes.
[[nodiscard]] std::map<std::string, std::vector<UnitBytes>> predicted_units(
    const PlanSubject& subject,
    const RecomputePlan& plan,
    const MicroBatchShape& shape,
    int64_t micro_batch);

}  // namespace lethe
