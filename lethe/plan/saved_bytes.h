#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lethe/base/documents.h"
#include "lethe/config/model_config.h"
#include "lethe/plan/make_plan.h"
#include "lethe/plan/recompute_plan.h"

// Predicted bytes of activations, from shapes (spec 3 3.2, 7.4). Pure functions.
namespace lethe {

/// The sizes of one micro-batch in one layer.
struct ActivationSizes {
  int64_t tokens = 0;              // T
  int64_t slots = 0;               // C: sum over documents of floor(length / ratio)
  int64_t chosen_slots = 0;        // K': columns of topk_idx; min(index_topk, C of a document)
  int64_t activation_bytes = 4;    // of an element: 4 float32, 2 bfloat16
  int64_t balanced_documents = 0;  // documents that the layer's balance loss counts; 0 without one
};

/// What decides the sizes of a micro-batch in every layer.
struct MicroBatchShape {
  Documents documents;
  bool balanced = false;              // there is a balance loss, which counts every document
  bool balances_hash_layers = false;  // of hash layers too
};

/// Of float32 activations, in a layer of this kind.
[[nodiscard]] ActivationSizes sizes_of(const ModelConfig& model,
                                       const MicroBatchShape& shape,
                                       const LayerKind& kind);

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

/// What each finer region of a stage frees in one micro-batch, by its name: "L3.mb0.sparse". Layers
/// that are recomputed whole are left out.
[[nodiscard]] std::map<std::string, int64_t> predicted_bytes(const PlanSubject& subject,
                                                             const RecomputePlan& plan,
                                                             const MicroBatchShape& shape,
                                                             int64_t micro_batch);

}  // namespace lethe
