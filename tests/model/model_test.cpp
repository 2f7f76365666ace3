#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>

#include "lethe/config/recipes.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/model/deepseek_v4.h"

namespace lethe {
namespace {

using test::lively_model;
using test::random_batch;
using test::tiny_a;

constexpr ParamPlacement kFp64{.float_type = ParamPlacement::Float::Fp64};

TEST(Model, MetaConstructionOfFlashAndProGivesThePublishedTotals) {
  constexpr ParamPlacement kMeta{.device = ParamPlacement::Device::Meta};
  EXPECT_EQ(DeepseekV4(recipe("flash"), kMeta).params().total_elements(), 290942289362);
  EXPECT_EQ(DeepseekV4(recipe("pro"), kMeta).params().total_elements(), 1598837347742);
  EXPECT_EQ(DeepseekV4(tiny_a(), kMeta).params().total_elements(), 464516);
}

TEST(Model, EveryLayerProgramEmitsTheSixteenEventsInOrder) {
  const DeepseekV4 model(tiny_a(), {});
  for (int64_t layer = 0; layer < 4; ++layer) {
    const auto& program = model.program(layer);
    ASSERT_EQ(program.size(), 16u);
    for (size_t i = 0; i < program.size(); ++i)
      EXPECT_EQ(program[i].event, static_cast<Event>(i + 1));
  }
}

TEST(Model, PackedDocumentsGiveTheLogitsOfSeparateRuns) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, kFp64, 3);
  const at::NoGradGuard no_grad;
  // Lengths around both ratios, and not divisible by either.
  const std::vector<int64_t> lengths{1, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};
  const MicroBatch packed = random_batch(config, lengths, 5);
  const at::Tensor together = model->logits(model->hidden(packed));
  std::vector<at::Tensor> alone;
  for (int64_t d = 0; d < packed.documents.count(); ++d) {
    const at::Tensor ids =
        packed.ids.narrow(0, packed.documents.begin(d), packed.documents.length(d));
    const int64_t* p = ids.const_data_ptr<int64_t>();
    const MicroBatch one = test::batch_of(config, {p, p + ids.numel()}, {ids.numel()});
    alone.push_back(model->logits(model->hidden(one)));
  }
  test::expect_close_rms(together, at::cat(alone), 1e-12, "packed logits");
}

TEST(Model, PackedDocumentsGiveTheSummedGradientsOfSeparateRuns) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, kFp64, 3);
  const LossFactors factors = test::all_losses(config);
  const std::vector<int64_t> lengths{5, 33, 4, 16, 1, 7};
  const MicroBatch packed = random_batch(config, lengths, 6);
  const auto together = test::gradients(*model, packed, factors);
  std::vector<at::Tensor> sum(together.size());
  for (int64_t d = 0; d < packed.documents.count(); ++d) {
    const at::Tensor ids =
        packed.ids.narrow(0, packed.documents.begin(d), packed.documents.length(d));
    const int64_t* p = ids.const_data_ptr<int64_t>();
    const auto one = test::gradients(
        *model, test::batch_of(config, {p, p + ids.numel()}, {ids.numel()}), factors);
    for (size_t i = 0; i < one.size(); ++i)
      if (one[i].defined()) sum[i] = sum[i].defined() ? sum[i] + one[i] : one[i];
  }
  for (size_t i = 0; i < together.size(); ++i) {
    ASSERT_EQ(together[i].defined(), sum[i].defined()) << i;
    if (together[i].defined())
      // The floor: all streams are equal in layer 0, so its mixing gradients cancel to their terms'
      // rounding.
      test::expect_close_rms(together[i], sum[i], 1e-10, "gradient " + std::to_string(i), 1e-5);
  }
}

// All layers hash-routed, and future ids that route alike, so that each expert sees equally many
// tokens and ATen's matrix products keep their row counts: then not a bit of the past may move.
TEST(Model, NoBitOfTheLogitsDependsOnFutureTokens) {
  ModelConfig config = tiny_a();
  config.num_hash_layers = config.num_layers;
  config.num_mtp = 0;
  config.ratios.resize(4);
  const auto model = lively_model(config, {}, 4);
  const at::NoGradGuard no_grad;
  const MicroBatch before = random_batch(config, {64}, 8);
  std::vector<int64_t> ids(before.ids.const_data_ptr<int64_t>(),
                           before.ids.const_data_ptr<int64_t>() + 64);
  constexpr int64_t kCut = 41;
  // The table is (id * k + j) mod E: ids 4 apart route alike for E = 8, k = 2.
  for (size_t t = kCut; t < 64; ++t) ids[t] = (ids[t] + 4) % config.vocab_size;
  const MicroBatch after = test::batch_of(config, ids, {64});
  const at::Tensor a = model->logits(model->hidden(before)),
                   b = model->logits(model->hidden(after));
  test::expect_bitwise(a.narrow(0, 0, kCut), b.narrow(0, 0, kCut), "logits of the past");
  EXPECT_GT((a - b).narrow(0, kCut, 64 - kCut).abs().max().item<float>(), 0.01F);
}

TEST(Model, ScoredRoutingKeepsThePastToFp32Rounding) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, {}, 4);
  const at::NoGradGuard no_grad;
  const MicroBatch before = random_batch(config, {64}, 8);
  std::vector<int64_t> ids(before.ids.const_data_ptr<int64_t>(),
                           before.ids.const_data_ptr<int64_t>() + 64);
  for (size_t t = 41; t < 64; ++t) ids[t] = (ids[t] + 37) % config.vocab_size;
  const at::Tensor a = model->logits(model->hidden(before)),
                   b = model->logits(model->hidden(test::batch_of(config, ids, {64})));
  test::expect_close_rms(a.narrow(0, 0, 41), b.narrow(0, 0, 41), 2e-5, "logits of the past");
}

TEST(Model, EveryTrainedParameterGetsAGradientFromAllLosses) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, {}, 9);
  const auto grads =
      test::gradients(*model, random_batch(config, {64, 33}, 2), test::all_losses(config));
  size_t i = 0;
  for (size_t p = 0; p < model->params().size(); ++p) {
    if (!model->params().value(p).requires_grad()) continue;
    ASSERT_TRUE(grads[i].defined()) << model->params().row(p).name;
    EXPECT_GT(grads[i].abs().max().item<float>(), 0) << model->params().row(p).name;
    ++i;
  }
}

TEST(Model, WithoutAnIndexerLossTheIndexerGetsNoGradient) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, {}, 9);
  LossFactors factors = test::all_losses(config);
  factors.indexer_loss = IndexerLoss::Off;
  const auto grads = test::gradients(*model, random_batch(config, {64}, 2), factors);
  size_t i = 0;
  for (size_t p = 0; p < model->params().size(); ++p) {
    if (!model->params().value(p).requires_grad()) continue;
    EXPECT_EQ(grads[i++].defined(), !is_indexer_param(model->params().row(p)))
        << model->params().row(p).name;
  }
}

TEST(Model, TheIndexerLossReachesNothingButTheIndexer) {
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, kFp64, 9);
  const MicroBatch batch = random_batch(config, {64}, 2);
  LossFactors with = test::all_losses(config), without = with;
  without.indexer_loss = IndexerLoss::Off;
  const auto a = test::gradients(*model, batch, with), b = test::gradients(*model, batch, without);
  size_t i = 0;
  for (size_t p = 0; p < model->params().size(); ++p) {
    if (!model->params().value(p).requires_grad()) continue;
    if (b[i].defined()) test::expect_bitwise(a[i], b[i], model->params().row(p).name);
    ++i;
  }
}

TEST(Model, ChangingRopeThetaMovesOnlyWindowLayers) {  // model spec 14 #2, #3
  const MicroBatch batch = random_batch(tiny_a(), {48}, 2);
  const auto first_out = [&](const ModelConfig& config, int64_t ratio) {
    ModelConfig one = config;
    one.num_layers = 1;
    one.num_hash_layers = 1;
    one.num_mtp = 0;
    one.ratios = {ratio};
    const at::NoGradGuard no_grad;
    return lively_model(one, kFp64, 5)->hidden(batch);
  };
  ModelConfig main = tiny_a(), compress = tiny_a();
  main.rope_theta = 500;
  compress.compress_rope_theta = 500;
  for (const int64_t ratio : {0, 4, 8}) {
    const at::Tensor base = first_out(tiny_a(), ratio);
    EXPECT_EQ(first_out(main, ratio).equal(base), ratio != 0) << ratio;
    EXPECT_EQ(first_out(compress, ratio).equal(base), ratio == 0) << ratio;
  }
}

TEST(Model, ScalingQueriesBeforeTheirNormChangesNothing) {  // model spec 14 #11
  const ModelConfig config = tiny_a();
  const auto model = lively_model(config, kFp64, 5);
  const MicroBatch batch = random_batch(config, {48}, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor base = model->hidden(batch);
  for (int64_t i = 0; i < 4; ++i)
    model->params()
        .value(fmt::format("decoder.layers.{}.self_attention.linear_q_up_proj.weight", i))
        .mul_(1000);
  // The norm's epsilon is all that is left of the scale: eps / mean(q^2) of about 1e-6.
  test::expect_close_rms(model->hidden(batch), base, 2e-5, "hidden");
}

TEST(Model, ParametersKeptInFp32StaySoInABf16Store) {  // model spec 14 #14
  const DeepseekV4 model(
      tiny_a(),
      {.float_type = ParamPlacement::Float::Bf16, .device = ParamPlacement::Device::Meta});
  int kept = 0;
  for (size_t i = 0; i < model.params().size(); ++i) {
    const std::string& name = model.params().row(i).name;
    const auto type = model.params().value(i).scalar_type();
    const bool must = name.find("hyper_connection") != std::string::npos ||
                      name.find("hc_head") != std::string::npos || name.ends_with("attn_sink") ||
                      name.ends_with(".ape") || name.ends_with("expert_bias") ||
                      name.ends_with("norm.weight");
    if (must) {
      EXPECT_EQ(type, at::kFloat) << name;
      ++kept;
    } else if (!model.params().row(i).is_integer) {
      EXPECT_EQ(type, at::kBFloat16) << name;
    }
  }
  EXPECT_GT(kept, 50);
}

TEST(Model, HashLayersHaveATableAndNoBias) {  // model spec 14 #19
  const DeepseekV4 model(tiny_a(), {});
  const auto biases = model.router_biases();
  ASSERT_EQ(biases.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(biases[i].defined(), i >= 2) << i;
  EXPECT_TRUE(model.params().has("decoder.layers.0.mlp.router.tid2eid"));
  EXPECT_FALSE(model.params().has("decoder.layers.2.mlp.router.tid2eid"));
}

// 256 tokens of 65536 logits are 64 MiB; a part of them exists at a time.
TEST(Model, TheLogitsOfAWholeBatchNeverExist) {
  install_byte_accounting();
  ModelConfig config = tiny_a();
  config.vocab_size = 1 << 16;
  const auto model = lively_model(config, {}, 3);
  const MicroBatch batch = random_batch(config, {256}, 4);
  const auto grown = [&](const auto& run) {
    const int64_t before = bytes().live;
    reset_peak();
    run();
    return bytes().peak - before;
  };
  constexpr int64_t kHalf = 32 << 20;
  EXPECT_LT(grown([&] {
              const at::NoGradGuard no_grad;
              (void)model->main_loss_sum(batch);
            }),
            kHalf);
  RunTally tally = model->make_tally();
  EXPECT_LT(grown([&] { (void)model->forward(batch, test::all_losses(config), tally); }), kHalf);
}

}  // namespace
}  // namespace lethe
