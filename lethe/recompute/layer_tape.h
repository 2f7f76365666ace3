#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/offload/layer_input_swap.h"
#include "lethe/plan/recompute_plan.h"
#include "lethe/plan/save_targets.h"
#include "lethe/recompute/recompute.h"

// Executes a recompute plan around the sub-graphs of a layer (spec 3 4): model code says which
// sub-graph it runs and which node has ended, the plan decides what becomes of the values.
namespace lethe {

/// Recompute and swap of one forward pass of a model. The default keeps everything.
struct RecomputePass {
  Tape* tape = nullptr;  // of this pass, where the plan recomputes; not needed by backward
  const RecomputePlan* plan = nullptr;  // outlives the graph
  int64_t micro_batch = 0;              // for names: "L3.mb0.sparse"
  LayerInputSwap* swap = nullptr;  // of this pass, where the plan swaps; not needed by backward

  [[nodiscard]] bool recomputes() const {
    return tape != nullptr && plan != nullptr && plan->recomputes();
  }

  [[nodiscard]] bool swaps() const { return swap != nullptr && plan != nullptr && plan->swaps(); }
};

/// What a model says of one of its layers.
struct LayerFacts {
  size_t index = 0;   // in the plan: main layers, then MTP blocks
  std::string label;  // "L3" or "MTP0"
  Tensors constants;  // what functions read besides their inputs and trained parameters
  const SaveTargetMap* save_targets =
      nullptr;  // what save units of the plan mean; not null where the pass recomputes
};

/// One layer of a pass. A small value that regions copy; the default runs everything plainly.
class LayerTape final {
 public:
  LayerTape() = default;

  /// Runs everything plainly, too. label: "L3" or "MTP0".
  explicit LayerTape(std::string label) : label_(std::move(label)), prefix_(label_ + ".") {}

  /// pass: one that recomputes or swaps.
  LayerTape(const RecomputePass& pass, LayerFacts facts);

  /// Of the layer, as censuses have it: "L3"; empty where nobody gave one.
  [[nodiscard]] const std::string& label() const { return label_; }

  /// Whether the plan has a region of this sub-graph.
  [[nodiscard]] bool has(SubgraphId id) const;

  /// fn(inputs): as a region where the plan has one, which gives its outputs back after their last
  /// read where the plan releases them. For fn and inputs see Tape::run. Throws as Tape::run.
  Tensors run(SubgraphId id, const RegionFn& fn, const Tensors& inputs) const;

  /// Whether the plan swaps what the layer reads: end_layer wants it.
  [[nodiscard]] bool swaps_input() const { return offers_; }

  /// Forward of the layer has made `output` and read `input` (where swaps_input(), else undefined)
  /// for the last time: it leaves for the host tier, where it waits for the gradient of the output;
  /// without one it stays. The inputs that left before are free on return, whatever the plan says
  /// of this one. Not inside of a region. Throws as LayerInputSwap::offer.
  void end_layer(const at::Tensor& input, const at::Tensor& output) const;

  /// The node that ends in `event` has run and made `output`: released activations whose gradient
  /// it is are restored when it arrives, a swapped input of the layer before them. Checked plans
  /// verify that what the plan releases here is free [DC2]. Nothing happens in a replay. A trace
  /// notes the event, whatever the plan.
  void event(Event event, const at::Tensor& output) const;

 private:
  [[nodiscard]] std::string region_name(SubgraphId id) const;
  void restore_with(Event event, const at::Tensor& output) const;
  void require_released(Event event) const;

  Tape* tape_ = nullptr;
  const LayerPlan* plan_ = nullptr;  // nullptr: nothing is recomputed
  bool checked_ = false;
  std::string label_;
  std::string prefix_;  // "L3.mb0.", without regions "L3."
  Tensors constants_;
  std::vector<KeptName> kept_;  // calls that a region of the whole layer keeps
  LayerInputSwap* swap_ = nullptr;
  int64_t input_layer_ = 0;  // whose input the pulls of this layer end at
  bool offers_ = false;
};

}  // namespace lethe
