#include "lethe/plan/recompute_priority.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lethe/base/error.h"

namespace lethe {
namespace {

int64_t even_chunk_length(const PipelineShape& shape) {
  if (shape.layers_per_virtual_stage) return *shape.layers_per_virtual_stage;
  const int64_t chunks = shape.pipeline_ranks * shape.virtual_stages.value_or(1);
  LETHE_CHECK(
      ConfigError,
      chunks > 0 && shape.num_layers % chunks == 0,
      "recompute priority [P1]: num_layers must be a multiple of {} pipeline ranks times {} "
      "chunks, got {}; give a pipeline layout",
      shape.pipeline_ranks,
      shape.virtual_stages.value_or(1),
      shape.num_layers);
  return shape.num_layers / chunks;
}

int64_t even_priority(const PipelineShape& shape,
                      const PipelineChunk& chunk,
                      int64_t layer_number,
                      bool per_pp_rank) {
  const bool over_chunks = per_pp_rank && shape.virtual_stages && chunk.v;
  const int64_t stride = over_chunks ? *shape.virtual_stages : 1;
  const int64_t offset = over_chunks ? *chunk.v : 0;
  return (layer_number - 1) % even_chunk_length(shape) * stride + offset;
}

/// The chunk that holds the layer: the given one, or the one where it is.
size_t chunk_of(const std::vector<std::vector<int64_t>>& chunks,
                const PipelineShape& shape,
                const PipelineChunk& chunk,
                int64_t layer) {
  const auto has = [&](size_t v) {
    return std::find(chunks[v].begin(), chunks[v].end(), layer) != chunks[v].end();
  };
  if (chunk.v) {
    LETHE_CHECK(ConfigError,
                *chunk.v >= 0 && *chunk.v < static_cast<int64_t>(chunks.size()),
                "recompute priority [P2]: the virtual rank must be in [0, {}) of layout '{}', got "
                "{}; correct it",
                chunks.size(),
                shape.layout->text,
                *chunk.v);
    if (has(static_cast<size_t>(*chunk.v))) return static_cast<size_t>(*chunk.v);
  } else {
    for (size_t v = 0; v < chunks.size(); ++v)
      if (has(v)) return v;
  }
  fail<ConfigError>(
      "recompute priority [P3]: the layer must stand on pipeline rank {}{} of layout '{}', got "
      "layer {}; ask the rank that holds it",
      chunk.p,
      chunk.v ? fmt::format(", virtual rank {}", *chunk.v) : "",
      shape.layout->text,
      layer + 1);
}

int64_t layout_priority(const PipelineShape& shape,
                        const PipelineChunk& chunk,
                        int64_t layer_number,
                        bool per_pp_rank) {
  const auto chunks = chunks_of_rank(shape, chunk.p);
  const int64_t layer = layer_number - 1;
  const auto& own = chunks[chunk_of(chunks, shape, chunk, layer)];
  if (!per_pp_rank) return layer - own.front();
  int64_t visited = 0;
  for (size_t depth = 0;; ++depth) {
    for (const auto& ids : chunks) {
      if (depth >= ids.size()) continue;
      if (ids[depth] == layer) return visited;
      ++visited;
    }
  }
}

}  // namespace

int64_t get_recompute_priority(const PipelineShape& shape,
                               const PipelineChunk& chunk,
                               std::optional<int64_t> layer_number,
                               std::optional<bool> enable_per_pp_rank) {
  LETHE_CHECK(
      ConfigError,
      layer_number.has_value(),
      "recompute priority [P4]: the layer number must be given, from 1, got none; MTP blocks "
      "have no priority, they follow the layers of their rank");
  LETHE_CHECK(
      ConfigError,
      *layer_number >= 1 && *layer_number <= shape.num_layers,
      "recompute priority [P4]: the layer number must be in [1, {}], got {}; it counts main "
      "layers from 1",
      shape.num_layers,
      *layer_number);
  const bool per_pp_rank = enable_per_pp_rank.value_or(shape.enable_recompute_layers_per_pp_rank);
  if (shape.layout) return layout_priority(shape, chunk, *layer_number, per_pp_rank);
  return even_priority(shape, chunk, *layer_number, per_pp_rank);
}

std::vector<std::vector<int64_t>> chunks_of_rank(const PipelineShape& shape, int64_t p) {
  if (shape.layout) {
    const auto num_stages = static_cast<int64_t>(shape.layout->stages.size());
    LETHE_CHECK(
        ConfigError,
        shape.pipeline_ranks > 0 && num_stages % shape.pipeline_ranks == 0,
        "pipeline layout '{}' [V1]: must have a multiple of {} stages, one or more for each "
        "pipeline rank, got {}; add or join stages",
        shape.layout->text,
        shape.pipeline_ranks,
        num_stages);
    return layers_of_rank(*shape.layout, shape.pipeline_ranks, p);
  }
  const int64_t length = even_chunk_length(shape);
  std::vector<std::vector<int64_t>> chunks;
  for (int64_t v = 0; v < shape.virtual_stages.value_or(1); ++v) {
    auto& ids = chunks.emplace_back(static_cast<size_t>(length));
    std::iota(ids.begin(), ids.end(), (v * shape.pipeline_ranks + p) * length);
  }
  return chunks;
}

LayerWindow layer_window(int64_t priority, int64_t full, std::optional<int64_t> fine) {
  if (priority < full) return LayerWindow::Full;
  return !fine || priority < full + *fine ? LayerWindow::Fine : LayerWindow::None;
}

int64_t num_ratio_layers(int64_t total, double ratio, bool has_last) {
  const auto chosen = static_cast<int64_t>(std::floor(static_cast<double>(total) * ratio));
  return has_last ? std::min(chosen, total - 1) : chosen;
}

}  // namespace lethe
