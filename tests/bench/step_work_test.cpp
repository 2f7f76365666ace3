#include "bench/support/step_work.h"

#include <map>

#include <gtest/gtest.h>

#include "lethe/config/hub_config.h"
#include "lethe/io/atomic_file.h"

namespace lethe::bench {
namespace {

// The figures with which the goals for this model were set.
TEST(StepWork, BenchmarkModelCostsWhatTheFormulasSay) {
  const std::string path = std::string(LETHE_SOURCE_DIR) + "/bench/peers/model.json";
  const ModelConfig config = parse_hub_config(read_text_file(path), path).model;
  const std::pair<int64_t, double> expected[] = {
      {512, 0.166}, {2048, 0.174}, {4096, 0.177}, {16384, 0.190}};
  for (const auto& [tokens, gflop] : expected) {
    const double per_token = total_flops(step_work(config, tokens)) / static_cast<double>(tokens);
    EXPECT_NEAR(per_token / 1e9, gflop, 0.02 * gflop) << tokens;
  }
}

TEST(StepWork, KeysOfEveryQueryAreCounted) {
  EXPECT_EQ(window_keys(5, 3), 1 + 2 + 3 + 3 + 3);
  EXPECT_EQ(slot_keys(9, 4, 10), 0 + 0 + 0 + 1 + 1 + 1 + 1 + 2 + 2);
  EXPECT_EQ(slot_keys(9, 4, 1), 6);
  EXPECT_EQ(attention_forward_flops(64, 512, 640), 83886080);
  EXPECT_EQ(attention_backward_flops(64, 512, 640), 209715200);
}

TEST(StepWork, LayersAndEndsMakeTheStep) {
  const std::string path = std::string(LETHE_SOURCE_DIR) + "/bench/peers/model.json";
  const ModelConfig config = parse_hub_config(read_text_file(path), path).model;
  double layers = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) layers += total_flops(layer_work(config, i, 300));
  const double head = 6.0 * 300 * 512 * 4096;
  EXPECT_NEAR(total_flops(step_work(config, 300)), layers + head, 0.01 * head);
}

// A third of every trained product, all of what has no backward, nothing of embedding and head.
TEST(StepWork, AReplayIsTheForwardOfTheLayers) {
  const std::string path = std::string(LETHE_SOURCE_DIR) + "/bench/peers/model.json";
  const ModelConfig config = parse_hub_config(read_text_file(path), path).model;
  std::map<std::string, NodeWork> step;
  for (const NodeWork& node : step_work(config, 300)) step[node.name] = node;
  for (const NodeWork& node : replay_work(config, 300)) {
    const NodeWork& both = step.at(node.name);
    if (node.name == "wq_b" || node.name == "experts") {
      EXPECT_DOUBLE_EQ(3 * node.flops, both.flops) << node.name;
    }
    if (node.name == "indexer scores and top-k" || node.name == "indexer projections") {
      EXPECT_EQ(node.flops, both.flops) << node.name;
    } else {
      EXPECT_LE(node.flops, both.flops) << node.name;
    }
    step.erase(node.name);
  }
  EXPECT_TRUE(step.contains("head and cross-entropy"));
  EXPECT_EQ(step.size(), 3U);  // with embedding and mhc_head
}

}  // namespace
}  // namespace lethe::bench
