#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lethe/plan/event.h"

namespace lethe {

/// The parts of a DeepSeek-V4 layer that a plan can name (spec 3 3.2): what may be a region, and
/// what only produces activations. Plain data, safe on every thread.
enum class SubgraphId : uint8_t {
  // Regions, in the order of the layer program, which is the restore order.
  AttnPre,       // G9 of the attention: mHC pre
  AttnNorm,      // G8
  QUp,           // G1: q_compressed -> q_up
  QUpNorm,       // G2: q_compressed -> q
  QNorm,         // G2': q_up -> q
  Indexer,       // G3
  CompressCast,  // G4: the compressor's input in fp32
  Sparse,        // G5
  Oup,           // G6: o-down and o-up, the inverse rotation before them where G5 lacks it
  AttnBda,       // G7
  AttnPost,      // G10: mHC post of the attention
  MlpPre,        // G9 of the MLP
  MlpNorm,       // the norm before the router
  Moe,           // router to combine
  SharedExpert,
  MlpPost,  // G11
  Layer,    // the whole layer
  // Producers that are never regions.
  LayerInput,
  QDown,
  Kv,
  Compressor,
  Router,
  Dispatch,
};

inline constexpr int kNumSubgraphs = static_cast<int>(SubgraphId::Dispatch) + 1;

/// What becomes of the output of a region.
enum class Mechanism : uint8_t {
  WithoutOutput,  // the output is released too (CheckpointWithoutOutput)
  Ordinary,       // the output stays, only what is saved inside is not
  None,           // no region
};

/// One row of the table of sub-graphs.
struct SubgraphInfo {
  SubgraphId id;
  std::string_view name;   // as region ids, plan files and traces have it: "sparse"
  std::string_view label;  // as the specification numbers it: "G5"; empty where it does not
  Event first, last;       // the nodes it spans
  Mechanism mechanism;
  std::string_view what;  // for reports
};

/// Every sub-graph, in the order of SubgraphId.
[[nodiscard]] std::span<const SubgraphInfo> subgraphs();

[[nodiscard]] const SubgraphInfo& subgraph_info(SubgraphId id);

[[nodiscard]] std::string_view subgraph_name(SubgraphId id);

/// The sub-graph of this name; nothing for another text.
[[nodiscard]] std::optional<SubgraphId> find_subgraph(std::string_view name);

[[nodiscard]] bool can_be_region(SubgraphId id);

/// The stage of the two-stage release (spec 3 3.3) in which the reference gives the outputs of a
/// region back while attention and mHC post are recomputed together: 1 right behind the attention
/// half, 2 at the end of the layer, 0 for sub-graphs that are not released there. The engine
/// releases at the last read, which is never later.
[[nodiscard]] int release_stage(SubgraphId id);

}  // namespace lethe
