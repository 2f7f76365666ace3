#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/plan/recompute_plan.h"

// Predicted bytes of activations, from shapes (spec 3 3.2, 7.4). Pure functions.
namespace lethe {

/// The sizes of one micro-batch in one layer.
struct ActivationSizes {
  int64_t tokens = 0;              // T
  int64_t slots = 0;               // C: sum over documents of floor(length / ratio)
  int64_t chosen_slots = 0;        // K': columns of topk_idx; min(index_topk, C of a document)
  int64_t activation_bytes = 4;    // of an element: 4 float32, 2 bfloat16
  int64_t balanced_documents = 0;  // documents that a balance loss counts; 0 without one
};

/// Bytes of an activation; 0 where the layer has none. Computing-type tensors (post, comb,
/// log-sum-exp, slot mass) and indices have 4 bytes an element.
[[nodiscard]] int64_t act_bytes(const ModelConfig& model, const ActivationSizes& sizes, ActId id);

/// Bytes that operators inside the region save besides its inputs, outputs and choices: they are
/// never kept once it is a region.
[[nodiscard]] int64_t inside_bytes(const ModelConfig& model,
                                   const ActivationSizes& sizes,
                                   const OperatorFacts& facts,
                                   const LayerKind& kind,
                                   SubgraphId region);

/// What one region saves between forward and backward.
struct RegionBytes {
  SubgraphId subgraph{};
  int64_t released = 0;  // outputs that somebody would save
  int64_t inside = 0;
  int64_t retained = 0;              // outputs that stay
  std::vector<std::string> holders;  // nodes that save a retained output: "attn.sparse"
  bool operator==(const RegionBytes&) const = default;

  [[nodiscard]] int64_t freed() const { return released + inside; }
};

/// Nodes that save an output of the region that the plan does not release: whatever the region
/// forgets, these keep its output. Empty where there is none, or no such region.
[[nodiscard]] std::vector<std::string> output_holders(const OperatorFacts& facts,
                                                      const LayerPlan& layer,
                                                      SubgraphId region);

/// One row for each enabled finer region, in restore order.
[[nodiscard]] std::vector<RegionBytes> region_bytes(const ModelConfig& model,
                                                    const ActivationSizes& sizes,
                                                    const OperatorFacts& facts,
                                                    const LayerPlan& layer);

}  // namespace lethe
