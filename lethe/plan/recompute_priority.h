#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lethe/plan/pipeline_layout.h"

// Which layers of a rank are recomputed (spec 3 5, R6.5). Pure functions.
namespace lethe {

/// How the layers of a model are spread over pipeline ranks.
struct PipelineShape {
  int64_t num_layers = 0;                            // L, without MTP blocks
  int64_t pipeline_ranks = 1;                        // P
  std::optional<int64_t> virtual_stages;             // V chunks per rank; absent = 1
  std::optional<int64_t> layers_per_virtual_stage;   // of a chunk; absent = L / P / V
  std::optional<PipelineLayout> layout;              // replaces the even spread
  bool enable_recompute_layers_per_pp_rank = false;  // counts go over the chunks of a rank
};

/// One chunk of one rank. Without v the chunk of a layer is looked up.
struct PipelineChunk {
  int64_t p = 0;
  std::optional<int64_t> v;
};

/// The place of a layer in the order in which the layers of a chunk (of a rank, where
/// enable_per_pp_rank) are chosen, from 0, without gaps: over the chunks of a rank by equal depth.
/// layer_number counts from 1 over the main layers of the model; MTP blocks have no priority.
/// enable_per_pp_rank: absent = the shape's. Throws ConfigError: no layer number, one of another
/// rank or chunk, v out of range, layers that do not divide evenly (give a layout).
/// Source: seed 000 3.3.6, spec 3 5.2 and 5.3.
[[nodiscard]] int64_t get_recompute_priority(const PipelineShape& shape,
                                             const PipelineChunk& chunk,
                                             std::optional<int64_t> layer_number,
                                             std::optional<bool> enable_per_pp_rank = {});

/// Main layers (0-based) of every chunk of rank p.
[[nodiscard]] std::vector<std::vector<int64_t>> chunks_of_rank(const PipelineShape& shape,
                                                               int64_t p);

enum class LayerWindow : uint8_t { None, Fine, Full };

/// Full for priorities below `full`; Fine for the `fine` priorities behind them (absent = all).
/// Source: spec 3 5.4.
[[nodiscard]] LayerWindow layer_window(int64_t priority, int64_t full, std::optional<int64_t> fine);

/// Layers that a ratio recomputes whole: floor(total * ratio), the very last layer of the model
/// never. Main layers and MTP blocks form one sequence. ratio in [0, 1]. Source: spec 3 R6.5.
[[nodiscard]] int64_t num_ratio_layers(int64_t total, double ratio, bool has_last);

}  // namespace lethe
