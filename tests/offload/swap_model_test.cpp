#include <vector>

#include "offload/swap_parts.h"
#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/offload/layer_input_swap.h"

// The streams between the layers of DeepSeek-V4, with every operator of Lethe as their reader.
namespace lethe {
namespace {

struct ModelStep {
  at::Tensor loss;
  std::vector<at::Tensor> grads;
  int64_t after_forward = 0;  // live bytes above those before
};

// Every layer's output is seen by the observer, so the record can be kept from outside.
ModelStep run(const DeepseekV4& model, const MicroBatch& batch, LayerInputSwap* swap) {
  const int64_t layers = model.config().num_layers;
  const LossFactors factors = test::all_losses(model.config());
  RunTally tally = model.make_tally();
  Observer observer;
  at::Tensor input;
  int64_t layer = 0;
  if (swap != nullptr)
    observer = [&](const std::string& name, const at::Tensor& value) {
      const bool is_output = layer < layers && name == fmt::format("layers.{}.out", layer);
      if (name != "embeddings" && !is_output) return;
      if (is_output) {
        (void)swap->offer(layer, input);
        swap->trigger_at(layer++, value);
      }
      input = value;
    };
  const int64_t before = bytes().live;
  const at::Tensor total = model.forward(batch, factors, tally, observer).total;
  input.reset();
  ModelStep step{.loss = total.detach().clone(), .after_forward = bytes().live - before};
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < model.params().size(); ++i)
    if (model.params().value(i).requires_grad()) leaves.push_back(model.params().value(i));
  step.grads =
      torch::autograd::grad({total}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  return step;
}

TEST(SwapModel, F1G11AllGradientsOfDeepSeekV4KeepEveryBit) {
  install_byte_accounting();
  const ModelConfig config = test::tiny_a();
  const auto model = test::lively_model(config, {}, 3);
  const MicroBatch batch = test::random_batch(config, {35, 21}, 5);
  const ModelStep plain = run(*model, batch, nullptr);
  test::TestTier tier;
  LayerInputSwap swap("mb0", {.num_layers = config.num_layers, .checked = true}, tier.backend);
  const ModelStep swapped = run(*model, batch, &swap);
  test::expect_bitwise(swapped.loss, plain.loss, "loss");
  ASSERT_EQ(swapped.grads.size(), plain.grads.size());
  for (size_t i = 0; i < plain.grads.size(); ++i) {
    ASSERT_EQ(swapped.grads[i].defined(), plain.grads[i].defined());
    if (plain.grads[i].defined())
      test::expect_bitwise(swapped.grads[i], plain.grads[i], fmt::format("gradient {}", i));
  }
  const SwapStats stats = swap.stats();
  EXPECT_EQ(stats.entries_in, config.num_layers - 1);
  // The first input is the embedding behind an expanded view: one stream of bytes.
  const int64_t tokens = 56, one = tokens * config.hidden * 4;
  EXPECT_EQ(stats.bytes_out, one + (config.num_layers - 2) * config.streams * one);
  EXPECT_EQ(plain.after_forward - swapped.after_forward, stats.bytes_out);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

}  // namespace
}  // namespace lethe
