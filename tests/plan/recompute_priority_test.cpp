#include "lethe/plan/recompute_priority.h"

#include <map>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_error;
using Priorities = std::map<int64_t, int64_t>;  // layer number -> priority
using Ids = std::vector<std::vector<int64_t>>;

PipelineShape with_layout(const char* layout, int64_t ranks, int64_t num_layers) {
  PipelineShape shape;
  shape.num_layers = num_layers;
  shape.pipeline_ranks = ranks;
  shape.layout = parse_layout(layout);
  return shape;
}

/// Of every layer of rank p, the chunk given by its number.
Priorities priorities(const PipelineShape& shape, int64_t p, bool per_pp_rank) {
  Priorities out;
  const auto chunks = chunks_of_rank(shape, p);
  for (size_t v = 0; v < chunks.size(); ++v)
    for (const int64_t id : chunks[v])
      out[id + 1] = get_recompute_priority(
          shape, {.p = p, .v = static_cast<int64_t>(v)}, id + 1, per_pp_rank);
  return out;
}

/// 1-based numbers of the layers of every chunk.
Ids numbers(const PipelineShape& shape, int64_t p) {
  Ids out = chunks_of_rank(shape, p);
  for (auto& chunk : out)
    for (int64_t& id : chunk) ++id;
  return out;
}

TEST(RecomputePriority, EvenSpreadIsTheTableOfTheSpecification) {
  PipelineShape shape;
  shape.num_layers = 8;
  shape.pipeline_ranks = 2;
  shape.virtual_stages = 2;
  EXPECT_EQ(numbers(shape, 0), (Ids{{1, 2}, {5, 6}}));
  EXPECT_EQ(numbers(shape, 1), (Ids{{3, 4}, {7, 8}}));
  EXPECT_EQ(priorities(shape, 0, false), (Priorities{{1, 0}, {2, 1}, {5, 0}, {6, 1}}));
  EXPECT_EQ(priorities(shape, 0, true), (Priorities{{1, 0}, {5, 1}, {2, 2}, {6, 3}}));
  EXPECT_EQ(priorities(shape, 1, false), (Priorities{{3, 0}, {4, 1}, {7, 0}, {8, 1}}));
  EXPECT_EQ(priorities(shape, 1, true), (Priorities{{3, 0}, {7, 1}, {4, 2}, {8, 3}}));
}

TEST(RecomputePriority, WithoutAnArgumentTheFlagOfTheShapeDecides) {
  PipelineShape shape;
  shape.num_layers = 8;
  shape.pipeline_ranks = 2;
  shape.virtual_stages = 2;
  const PipelineChunk second{.p = 0, .v = 1};
  EXPECT_EQ(get_recompute_priority(shape, second, 5), 0);
  shape.enable_recompute_layers_per_pp_rank = true;
  EXPECT_EQ(get_recompute_priority(shape, second, 5), 1);
  EXPECT_EQ(get_recompute_priority(shape, second, 5, false), 0);
}

TEST(RecomputePriority, LayersOfAVirtualStageMayBeGiven) {
  PipelineShape shape;
  shape.num_layers = 8;
  shape.virtual_stages = 2;
  shape.layers_per_virtual_stage = 4;
  EXPECT_EQ(get_recompute_priority(shape, {.p = 0, .v = 1}, 6, true), 3);
}

TEST(RecomputePriority, ALayerCountThatDoesNotDivideIsRefused) {
  PipelineShape shape;
  shape.num_layers = 7;
  shape.pipeline_ranks = 2;
  expect_error<ConfigError>([&] { (void)get_recompute_priority(shape, {}, 1); },
                            {"[P1]", "2 pipeline ranks", "got 7", "give a pipeline layout"});
}

TEST(RecomputePriority, UnevenLayoutIsDense) {
  const PipelineShape shape = with_layout("E|t|t*2|t||(t|)*2,t*2,L", 4, 8);
  EXPECT_EQ(numbers(shape, 0), (Ids{{}, {}}));
  EXPECT_EQ(numbers(shape, 1), (Ids{{1}, {5}}));
  EXPECT_EQ(numbers(shape, 2), (Ids{{2, 3}, {6}}));
  EXPECT_EQ(numbers(shape, 3), (Ids{{4}, {7, 8}}));
  EXPECT_EQ(priorities(shape, 1, false), (Priorities{{1, 0}, {5, 0}}));
  EXPECT_EQ(priorities(shape, 2, false), (Priorities{{2, 0}, {3, 1}, {6, 0}}));
  EXPECT_EQ(priorities(shape, 3, false), (Priorities{{4, 0}, {7, 0}, {8, 1}}));
  EXPECT_EQ(priorities(shape, 1, true), (Priorities{{1, 0}, {5, 1}}));
  EXPECT_EQ(priorities(shape, 2, true), (Priorities{{2, 0}, {6, 1}, {3, 2}}));
  EXPECT_EQ(priorities(shape, 3, true), (Priorities{{4, 0}, {7, 1}, {8, 2}}));
}

TEST(RecomputePriority, ALongFirstChunkLeavesNoGaps) {
  const PipelineShape shape = with_layout("Et|t*4|t|tL", 2, 7);
  EXPECT_EQ(numbers(shape, 1), (Ids{{2, 3, 4, 5}, {7}}));
  EXPECT_EQ(priorities(shape, 1, true), (Priorities{{2, 0}, {7, 1}, {3, 2}, {4, 3}, {5, 4}}));
}

TEST(RecomputePriority, TheProLayoutIsTheOneOfTheSpecification) {
  const PipelineShape shape = with_layout("Et*3|(tt|)*29,m|L", 8, 61);
  EXPECT_EQ(numbers(shape, 0), (Ids{{1, 2, 3}, {18, 19}, {34, 35}, {50, 51}}));
  EXPECT_EQ(
      priorities(shape, 0, true),
      (Priorities{{1, 0}, {18, 1}, {34, 2}, {50, 3}, {2, 4}, {19, 5}, {35, 6}, {51, 7}, {3, 8}}));
  EXPECT_EQ(numbers(shape, 6), (Ids{{14, 15}, {30, 31}, {46, 47}, {}}));
  EXPECT_EQ(priorities(shape, 6, true),
            (Priorities{{14, 0}, {30, 1}, {46, 2}, {15, 3}, {31, 4}, {47, 5}}));
}

TEST(RecomputePriority, TheChunkOfALayerIsLookedUp) {
  const PipelineShape shape = with_layout("E|t|t*2|t||(t|)*2,t*2,L", 4, 8);
  EXPECT_EQ(get_recompute_priority(shape, {.p = 2, .v = {}}, 6, true), 1);
  EXPECT_EQ(get_recompute_priority(shape, {.p = 2, .v = {}}, 6, false), 0);
}

TEST(RecomputePriority, WrongQuestionsAreRefused) {
  const PipelineShape shape = with_layout("E|t|t*2|t||(t|)*2,t*2,L", 4, 8);
  const auto ask = [&shape](int64_t p, std::optional<int64_t> v, std::optional<int64_t> layer) {
    return [&shape, p, v, layer] { (void)get_recompute_priority(shape, {.p = p, .v = v}, layer); };
  };
  expect_error<ConfigError>(ask(2, 0, std::nullopt), {"[P4]", "must be given", "MTP blocks"});
  expect_error<ConfigError>(ask(2, 0, 0), {"[P4]", "[1, 8]", "got 0"});
  expect_error<ConfigError>(ask(2, 0, 9), {"[P4]", "[1, 8]", "got 9"});
  expect_error<ConfigError>(ask(2, 2, 2), {"[P2]", "[0, 2)", "got 2", "E|t|t*2"});
  expect_error<ConfigError>(ask(2, 0, 4), {"[P3]", "rank 2", "got layer 4"});
  expect_error<ConfigError>(ask(2, 1, 2), {"[P3]", "rank 2, virtual rank 1", "got layer 2"});
  expect_error<ConfigError>(ask(2, std::nullopt, 4), {"[P3]", "rank 2 of", "got layer 4"});
  const PipelineShape three = with_layout("Et|t|tL", 2, 3);
  expect_error<ConfigError>([&] { (void)get_recompute_priority(three, {.p = 0, .v = 0}, 1); },
                            {"[V1]", "multiple of 2", "got 3"});
}

TEST(RecomputePriority, WindowsAreDisjoint) {
  using enum LayerWindow;
  const auto row = [](int64_t full, std::optional<int64_t> fine) {
    std::vector<LayerWindow> out;
    for (int64_t priority = 0; priority < 4; ++priority)
      out.push_back(layer_window(priority, full, fine));
    return out;
  };
  EXPECT_EQ(row(0, std::nullopt), (std::vector{Fine, Fine, Fine, Fine}));
  EXPECT_EQ(row(0, 2), (std::vector{Fine, Fine, None, None}));
  EXPECT_EQ(row(1, 2), (std::vector{Full, Fine, Fine, None}));
  EXPECT_EQ(row(1, std::nullopt), (std::vector{Full, Fine, Fine, Fine}));
  EXPECT_EQ(row(0, 0), (std::vector{None, None, None, None}));
}

// R6.5: 7 decoder layers, 3 MTP blocks, 0.8.
TEST(RecomputePriority, ARatioTakesTheFloorAndNeverTheLastLayer) {
  EXPECT_EQ(num_ratio_layers(10, 0.8, true), 8);
  EXPECT_EQ(num_ratio_layers(10, 0.19, true), 1);
  EXPECT_EQ(num_ratio_layers(10, 0, true), 0);
  EXPECT_EQ(num_ratio_layers(10, 1, true), 9);
  EXPECT_EQ(num_ratio_layers(10, 1, false), 10);
}

}  // namespace
}  // namespace lethe
