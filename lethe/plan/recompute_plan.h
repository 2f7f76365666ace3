#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/recompute_config.h"
#include "lethe/plan/layer_flow.h"

// What is released when, and what brings it back, as data (spec 3 4.3). The same object feeds the
// runtime, the prediction of bytes, traces and the plan file. Values, safe on every thread.
namespace lethe {

/// What becomes of an activation between its last read in forward and its first in backward.
enum class Keep : uint8_t {
  Keep,
  Release,
  Full,  // inside a region that spans it: never kept, never restored by itself
  Swap,  // waits in a host tier; the input of a layer only
};

/// What brings a released activation back.
struct Trigger {
  enum class Kind : uint8_t {
    Pull,      // the first reader in backward
    OnGradOf,  // the gradient of the output of the node that ends in `at`
    Explicit,  // the scheduler, before the backward of a part of the layer
  };
  Kind kind = Kind::Pull;
  Event at = Event::Never;
  bool operator==(const Trigger&) const = default;
};

enum class ReplayStop : uint8_t { On, Off, AfterLastCollective };

/// One activation. In mode Engine a pull always works and the triggers only prefetch; in mode
/// Reentrant they decide correctness.
struct ActRule {
  std::string name;
  ActId id{};
  Keep keep = Keep::Keep;
  Event last_read = Event::Never;  // of forward; the release may not come before it (SC1)
  Event release = Event::Never;    // Release: the bytes are dead after this event
  Trigger restore{}, restore_overlap{};
  bool operator==(const ActRule&) const = default;
};

/// One region of a layer.
struct RegionRule {
  SubgraphId subgraph{};
  std::vector<ActId> inputs, outputs;
  bool has_collective = false, has_rng = false;
  ReplayStop stop = ReplayStop::On;
  bool operator==(const RegionRule&) const = default;
};

/// What every layer of a class does.
struct LayerPlan {
  std::string layer_class;  // "main/ratio4 csa+norm+mhc", unique in a plan
  LayerKind kind;
  bool nested = false;              // a Layer region around finer ones is wanted (SC9)
  std::vector<RegionRule> regions;  // the enabled ones
  std::vector<ActRule> acts;
  std::vector<std::string> save_units;      // what stays resident inside the Layer region
  std::vector<std::string> allow_mutation;  // of these: results may be written to (R6.19)
  bool operator==(const LayerPlan&) const = default;

  [[nodiscard]] const RegionRule* find(SubgraphId id) const;  // nullptr where not enabled
  [[nodiscard]] const ActRule* find(ActId id) const;          // nullptr where the layer has none

  /// The input of the layer waits in a host tier from forward to backward.
  [[nodiscard]] bool swaps_input() const;
};

enum class RecomputeMode : uint8_t {
  Engine,     // pull-based, bit-identical
  Reentrant,  // hooks only, nested backward: parity experiments and the negative control
};

struct RecomputePlan {
  std::vector<LayerPlan> classes;
  std::vector<uint16_t> layer_to_class;  // of this stage: main layers, then MTP blocks
  uint32_t mhc_block = 1;                // layers per mHC block (spec 3 4.6 note 3)
  uint32_t full_chunk = 1;               // layers per region of whole-layer recompute
  MtpSelection mtp = MtpSelection::Include;
  RecomputeMode mode = RecomputeMode::Engine;
  PlanChecks checks = PlanChecks::Off;
  bool operator==(const RecomputePlan&) const = default;

  /// Of the layer at this position of the stage.
  [[nodiscard]] const LayerPlan& layer(size_t index) const;
  /// Something is recomputed somewhere: the engine must be there.
  [[nodiscard]] bool recomputes() const;
  /// The input of some layer is swapped: a host tier must be there.
  [[nodiscard]] bool swaps() const;

  /// Everything stays where it is.
  [[nodiscard]] bool is_empty() const { return !recomputes() && !swaps(); }

  /// The layer whose resident or swapped input a pull in this layer ends at: itself, unless its
  /// input is given back inside of an mHC block or a chunk of whole layers.
  [[nodiscard]] size_t input_source(size_t index) const;
};

/// The enabled regions in the order in which their outputs come back: every region behind those
/// that make its inputs (spec 3 3.3).
[[nodiscard]] std::vector<SubgraphId> restore_order(const LayerPlan& plan);

/// The released activations of q and o: what discard_csa_attention_intermediate_outputs() of seed
/// 000 gives back.
[[nodiscard]] std::vector<ActId> stage_one_releases(const LayerPlan& plan);

/// All other released activations of the attention's regions: what
/// discard_csa_attention_output(hook) gives back.
[[nodiscard]] std::vector<ActId> final_releases(const LayerPlan& plan);

/// True where the reference copies the attention's output before mHC post: its overlap path frees
/// that tensor before the hook of mHC post runs (spec 3 3.4). The engine keeps the tensor by its
/// handle instead and saves the copy's bytes.
[[nodiscard]] bool reference_clones_attention(const LayerPlan& plan, bool overlap);

/// "sparse.0": an activation by its sub-graph, as plan files have it.
[[nodiscard]] std::string act_text(ActId id);

/// The inverse; nothing for another text.
[[nodiscard]] std::optional<ActId> find_act(std::string_view text);

}  // namespace lethe
