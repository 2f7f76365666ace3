#pragma once

#include <string>
#include <vector>

#include "lethe/config/recompute_config.h"
#include "lethe/plan/recompute_plan.h"

// From what a user chose to the plan of one layer (spec 3 3.1 to 3.3, 4.6). Pure functions.
namespace lethe {

/// Under what a forward runs: no region is built in evaluation or without gradients.
struct RunPhase {
  bool training = true;
  bool grad_enabled = true;
};

/// The predicates of spec 3 3.1 for one layer.
struct EnabledParts {
  bool csa = false;     // R_csa
  bool q_norm = false;  // R_qn
  bool mhc = false;     // R_mhc

  /// Outputs of the attention are given back in two stages.
  [[nodiscard]] bool defer() const { return csa && mhc; }

  bool operator==(const EnabledParts&) const = default;
};

/// norm_selected: the norm policy chose this layer (layer_window).
[[nodiscard]] EnabledParts enabled_parts(const RecomputeConfig& config,
                                         bool is_mtp,
                                         bool norm_selected,
                                         const RunPhase& phase);

/// What of the attention half stays, to shorten the chain that a pull of the MLP half replays
/// (spec 3 3.3).
enum class AttnKeep : uint8_t {
  Nothing,
  AttnOut,  // attn_out
  Stream,   // y_mid, the streams between the halves
};

/// Everything that decides the plan of a layer, besides its kind and the operators.
struct LayerChoice {
  bool full = false;         // one region around the layer
  bool chunk_begins = true;  // full: the layer's input is kept; else a chunk goes on from before
  bool chunk_ends = true;    // full: the layer's output is kept
  EnabledParts parts;        // of the flags
  bool layer_norms = false;  // norms before attention and MLP
  bool core_attention = false, q_up = false, moe = false, shared_expert = false;  // modules
  AttnKeep attn_keep = AttnKeep::Nothing;
  bool inner_of_block = false;  // not the last layer of an mHC block
  bool nested = false;          // full around the finer ones
  bool swap_input = false;      // x_in waits in a host tier
  std::vector<std::string> save_units;
  std::vector<std::string> allow_mutation;  // of save_units
  bool operator==(const LayerChoice&) const = default;

  /// "plain", "full", "csa+norm+mhc inner": unique for every choice.
  [[nodiscard]] std::string text() const;
};

/// The plan of one layer. A region whose sub-graph the layer lacks (LayerFlow::exclusions) is left
/// out. Its class is named "main/ratio4 csa+mhc".
[[nodiscard]] LayerPlan make_layer_plan(const LayerKind& kind,
                                        const OperatorFacts& facts,
                                        const LayerChoice& choice);

}  // namespace lethe
