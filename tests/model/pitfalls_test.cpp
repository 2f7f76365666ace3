// Rules that public implementations broke (model spec 14), where a whole model shows them.

#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/config/contract.h"

namespace lethe {
namespace {

constexpr ParamPlacement kFp64{.float_type = ParamPlacement::Float::Fp64};

ModelConfig one_layer(int64_t ratio) {
  ModelConfig config = test::tiny_a();
  config.num_layers = 1;
  config.num_hash_layers = 1;
  config.num_mtp = 0;
  config.ratios = {ratio};
  return config;
}

// #5: without the inverse rotation of the output, values would carry their absolute position.
TEST(Pitfalls, ShiftingAllPositionsChangesNothingInAWindowLayer) {
  const ModelConfig config = one_layer(0);
  const auto model = test::lively_model(config, kFp64, 5);
  const at::NoGradGuard no_grad;
  MicroBatch batch = test::random_batch(config, {48}, 2);
  const at::Tensor base = model->hidden(batch);
  batch.positions = batch.positions + 1000;
  // Angles are float32: at position 1000 they are rounded to 6e-5.
  test::expect_close_rms(model->hidden(batch), base, 1e-3, "hidden");
  batch.positions = batch.positions.flip(0).contiguous();
  EXPECT_GT((model->hidden(batch) - base).abs().max().item<double>(), 0.01);
}

// #9: only the overlapping ratio has two halves per slot.
TEST(Pitfalls, RatioFourAloneHasCompressorTensorsOfTwoHalves) {
  for (const ParamSpec& spec : contract(test::tiny_a())) {
    if (!spec.name.ends_with("core_attention.compressor.linear_wkv.weight")) continue;
    EXPECT_EQ(spec.shape[0], spec.name.find(".layers.2.") == std::string::npos ? 64 : 32)
        << spec.name;
  }
}

// #18: a hash layer routes by token id alone; nothing falls back to the scores.
TEST(Pitfalls, HashRoutingIgnoresTheScores) {
  const ModelConfig config = one_layer(0);
  const auto model = test::lively_model(config, kFp64, 5);
  const at::NoGradGuard no_grad;
  const MicroBatch batch = test::random_batch(config, {48}, 2);
  const auto ids_chosen = [&] {
    at::Tensor seen;
    RunTally tally = model->make_tally();
    const auto out = model->forward(batch,
                                    test::all_losses(config),
                                    tally,
                                    [&](const std::string& name, const at::Tensor& value) {
                                      if (name == "layers.0.ffn.gate.indices") seen = value.clone();
                                    });
    return seen;
  };
  const at::Tensor before = ids_chosen();
  model->params().value("decoder.layers.0.mlp.router.weight").mul_(-3);
  test::expect_bitwise(ids_chosen(), before, "experts");
}

// #20: counts belong to forwards that train; looking at the model must not move the router.
TEST(Pitfalls, ForwardsWithoutGradientsDoNotCountExperts) {
  const ModelConfig config = test::tiny_a();
  const auto model = test::lively_model(config, {}, 5);
  const MicroBatch batch = test::random_batch(config, {48}, 2);
  RunTally looked = model->make_tally(), trained = model->make_tally();
  {
    const at::NoGradGuard no_grad;
    const auto out = model->forward(batch, test::all_losses(config), looked);
  }
  const auto out = model->forward(batch, test::all_losses(config), trained);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(looked.expert_counts[i].defined()) << i;
    ASSERT_EQ(trained.expert_counts[i].defined(), i >= 2) << i;
    if (i < 2) continue;
    EXPECT_EQ(trained.expert_counts[i].sum().item<int64_t>(), 48 * 2) << i;
  }
}

// #22: MTP continues all n streams, not their collapse.
TEST(Pitfalls, MtpReadsAndWritesAllStreams) {
  const ModelConfig config = test::tiny_a();
  const auto model = test::lively_model(config, {}, 5);
  const at::NoGradGuard no_grad;
  std::vector<int64_t> shape;
  RunTally tally = model->make_tally();
  const auto out = model->forward(test::random_batch(config, {20}, 2),
                                  test::all_losses(config),
                                  tally,
                                  [&](const std::string& name, const at::Tensor& value) {
                                    if (name == "mtp.0.out") shape = value.sizes().vec();
                                  });
  EXPECT_EQ(shape, (std::vector<int64_t>{20, config.streams, config.hidden}));
}

// #25: a loss that agrees hides gradients that do not; every bit of every gradient must repeat.
TEST(Pitfalls, GradientsOfOneBatchRepeatToTheBit) {
  const ModelConfig config = test::tiny_a();
  const auto model = test::lively_model(config, {}, 5);
  const MicroBatch batch = test::random_batch(config, {48, 17}, 2);
  const auto a = test::gradients(*model, batch, test::all_losses(config));
  const auto b = test::gradients(*model, batch, test::all_losses(config));
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].defined()) test::expect_bitwise(a[i], b[i], "gradient " + std::to_string(i));
}

}  // namespace
}  // namespace lethe
