#include "lethe/config/resolve.h"

#include "support/settings_request.h"
#include <gtest/gtest.h>

#include "lethe/config/hub_config.h"
#include "lethe/config/recipes.h"
#include "lethe/config/settings_layer.h"
#include "lethe/config/settings_text.h"

namespace lethe {
namespace {

using test::has;
using test::has_note;
using test::Request;
using test::saved_by;
using test::tiny;

std::string config_dir() {
  return LETHE_GOLDEN_DIR "/T";
}

Request golden() {
  return Request()
      .with("hf-config", {config_dir()})
      .with("lr", {"1e-3"})
      .with("train-iters", {"5"})
      .with("dsa-indexer-loss-coeff", {"0.01"});
}

TEST(Resolve, TheRecipeTinyIsComplete) {
  const ResolvedSettings resolved = tiny().resolve();
  EXPECT_EQ(resolved.config.model, recipe("tiny"));
  EXPECT_EQ(resolved.provenance.at("num_layers"), "recipe tiny");
  EXPECT_EQ(resolved.provenance.at("lr"), "recipe tiny");
  EXPECT_EQ(resolved.config.train.seed, 1234);
}

TEST(Resolve, ALaterSourceWins) {
  const ResolvedSettings resolved = tiny()
                                        .file("lr = 1e-3\nseed = 5\nmin_lr = 0.0")
                                        .file("[train]\nlr = 2e-3")
                                        .with("seed", {"9"})
                                        .resolve();
  EXPECT_EQ(resolved.config.train.lr, 2e-3);
  EXPECT_EQ(resolved.config.train.seed, 9);
  EXPECT_EQ(resolved.config.train.min_lr, 0.0);
  EXPECT_EQ(resolved.config.train.weight_decay, 0.1);
  EXPECT_TRUE(has(resolved.provenance.at("lr"), "1.toml:2"));
  EXPECT_EQ(resolved.provenance.at("seed"), "command line");
}

TEST(Resolve, ARepeatInALaterFileIsLogged) {
  EXPECT_TRUE(has_note(tiny().file("lr = 1e-3").file("lr = 2e-3").resolve(), "lr: "));
  EXPECT_FALSE(has_note(tiny().file("lr = 1e-3").file("lr = 1e-3").resolve(), "lr: "));
}

TEST(Resolve, TheRecipeMayStandInAFile) {
  EXPECT_EQ(Request().file("recipe = \"tiny\"").resolve().config.model, recipe("tiny"));
}

TEST(Resolve, AnUnknownNameNamesItsNeighbour) {
  EXPECT_TRUE(has(tiny().with("num-layer", {"4"}).error(), "did you mean '--num-layers'?"));
  EXPECT_TRUE(has(tiny().file("num_layer = 4").error(), "did you mean 'num_layers'?"));
  EXPECT_TRUE(has(tiny().file("num-layers = 4").error(), "[unknown]"));
  EXPECT_TRUE(has(tiny().with("wibblywobbly", {"4"}).error(), "see lethe train --help"));
  EXPECT_TRUE(has(Request().with("recipe", {"tinny"}).error(), "tiny"));
}

TEST(Resolve, AKnownNameThatIsNotBuiltSaysSo) {
  const std::string text = tiny().with("tensor-model-parallel-size", {"2"}).error();
  EXPECT_TRUE(has(text, "--tensor-model-parallel-size [not-built]"));
  EXPECT_TRUE(has(text, "this build trains in one process"));
  EXPECT_TRUE(has(tiny().file("[parallel]\nzero_stage = 1").error(), "zero_stage ("));
}

TEST(Resolve, ASettingOfAnotherCommandIsRefused) {
  EXPECT_TRUE(has(tiny().with("prompt", {"x"}).error(),
                  "[command]: must be a setting of lethe train, got one of lethe generate"));
  EXPECT_TRUE(has(Request().command("compare").with("lr", {"1"}).error(), "[command]"));
  EXPECT_TRUE(has(Request().command("dance").error(), "lethe [command]"));
}

TEST(Resolve, ARepeatedFlagIsRefused) {
  EXPECT_TRUE(has(tiny().with("lr", {"1e-3"}).with("lr", {"1e-3"}).error(), "--lr [repeat]"));
  EXPECT_TRUE(has(tiny().file("lr = 1e-3\n[train]\nlr = 1e-3").error(), "[repeat]"));
}

TEST(Resolve, AnAliasMustAgreeWithItsName) {
  EXPECT_TRUE(has(tiny().with("mhc-eps", {"1e-6"}).with("hc-eps", {"1e-5"}).error(),
                  "--hc-eps [alias]: must equal --mhc-eps"));
  EXPECT_EQ(
      tiny().with("mhc-eps", {"1e-5"}).with("hc-eps", {"0.00001"}).resolve().config.model.hc_eps,
      1e-5);
}

TEST(Resolve, EveryErrorIsReportedAtOnce) {
  const std::string text = tiny()
                               .with("lr", {"-1"})
                               .with("nonsense", {"1"})
                               .with("clip-grad", {"x"})
                               .file("zero_stage = 1")
                               .error();
  EXPECT_TRUE(has(text, "4 errors:"));
  EXPECT_TRUE(has(text, "--lr [range]") && has(text, "--nonsense [unknown]"));
  EXPECT_TRUE(has(text, "--clip-grad [type]") && has(text, "zero_stage"));
}

TEST(Resolve, WhatHasNoDefaultMustBeGiven) {
  const std::string text = Request().error();
  for (const char* flag : {"--num-layers",
                           "--hidden-size",
                           "--num-attention-heads",
                           "--vocab-size",
                           "--csa-compress-ratios",
                           "--lr",
                           "--train-iters"})
    EXPECT_TRUE(has(text, std::string(flag) + " [required]")) << flag;
}

TEST(Resolve, TheShapeComesFromConfigJson) {
  const ResolvedSettings resolved = golden().resolve();
  EXPECT_EQ(resolved.config.model.hidden, 64);
  EXPECT_EQ(resolved.config.model.index_topk, 8);
  EXPECT_EQ(resolved.config.model.yarn->original_max_positions, 64);
  EXPECT_TRUE(has(resolved.provenance.at("hidden_size"), "config.json"));
}

TEST(Resolve, EveryShapeFlagMustAgreeWithConfigJson) {
  const ResolvedSettings base = golden().resolve();
  int checked = 0;
  for (const Setting& row : settings()) {
    if (!row.in_hub_config) continue;
    const SettingValue value = *row.get(base.config);
    std::vector<std::string> right{value_text(value)};
    if (const auto* text = std::get_if<std::string>(&value)) right = {*text};
    if (row.type != SettingType::Bool) {
      EXPECT_EQ(golden().with(row.flag, right).error(), "accepted") << row.flag;
    }
    std::vector<std::string> wrong{"3"};
    if (row.type == SettingType::Bool) wrong = {std::get<bool>(value) ? "false" : "true"};
    if (row.type == SettingType::Enum) wrong = {"softmax"};
    EXPECT_TRUE(has(golden().with(row.flag, wrong).error(),
                    "--" + row.flag + " [E-CONFIG-MISMATCH]: must agree with"))
        << row.flag;
    ++checked;
  }
  EXPECT_GE(checked, 30);
}

TEST(Resolve, AMissingConfigJsonIsNamed) {
  EXPECT_TRUE(has(Request().with("hf-config", {"/no/such"}).error(), "/no/such/config.json"));
  EXPECT_TRUE(has(Request().with("hf-config", {""}).error(), "must not be empty"));
}

TEST(Resolve, ARatioPerMainLayerGivesMtpBlocksZero) {
  ModelConfig model = recipe("tiny");
  ASSERT_GT(model.num_mtp, 0);
  std::vector<std::string> words;
  for (int64_t i = 0; i < model.num_layers; ++i) words.push_back(std::to_string(model.ratio(i)));
  const ResolvedSettings resolved = tiny().with("csa-compress-ratios", words).resolve();
  EXPECT_EQ(resolved.config.model.ratios, model.ratios);
  EXPECT_TRUE(has_note(resolved, "MTP blocks get ratio 0"));
  words.pop_back();
  EXPECT_NE(tiny().with("csa-compress-ratios", words).error(), "accepted");
}

TEST(Resolve, AnImpossibleShapeIsRefusedByTheModelsRules) {
  EXPECT_NE(tiny().with("moe-router-topk", {"9999"}).error(), "accepted");
}

TEST(Resolve, ConstantsAreAcceptedWhereTheyAreTrue) {
  EXPECT_EQ(tiny()
                .with("multi-latent-attention", {"true"})
                .with("position-embedding-type", {"deepseek4"})
                .with("moe-layer-freq", {"[1,1,1]"})
                .error(),
            "accepted");
  EXPECT_TRUE(has(tiny().with("multi-latent-attention", {"false"}).error(),
                  "[constant]: must be true, got false; DeepSeek-V4 requires it"));
  EXPECT_TRUE(has(tiny().with("moe-layer-freq", {"1", "0"}).error(), "[constant]"));
  EXPECT_TRUE(has(tiny().with("position-embedding-type", {"alibi"}).error(), "[constant]"));
  EXPECT_TRUE(has(tiny().with("enable-hyper-connections", {"false"}).error(), "[constant]"));
  EXPECT_TRUE(has(tiny().with("model", {"llama"}).error(), "[constant]"));
}

TEST(Resolve, MirrorsMustRepeatTheirSetting) {
  const std::string width = std::to_string(recipe("tiny").head_dim);
  EXPECT_EQ(tiny().with("kv-lora-rank", {width}).with("qk-head-dim", {width}).error(), "accepted");
  EXPECT_TRUE(has(tiny().with("kv-lora-rank", {"7"}).error(),
                  "--kv-lora-rank [constant]: must be " + width));
  EXPECT_TRUE(has(tiny().with("ffn-hidden-size", {"7"}).error(), "[constant]"));
  EXPECT_TRUE(has(tiny().with("moe-shared-expert-intermediate-size", {"7"}).error(), "[constant]"));
}

TEST(Resolve, YarnParametersNeedYarn) {
  EXPECT_FALSE(tiny().with("rotary-scaling-factor", {"0"}).resolve().config.model.yarn);
  const ModelConfig model = tiny()
                                .with("rope-scaling-factor", {"40"})
                                .with("original-seq-len", {"64"})
                                .with("beta-fast", {"31"})
                                .resolve()
                                .config.model;
  EXPECT_EQ(model.yarn, (YarnScaling{40, 64, 31, recipe("tiny").yarn->beta_slow}));
  EXPECT_TRUE(has(tiny().with("rotary-scaling-factor", {"0"}).with("beta-fast", {"31"}).error(),
                  "--beta-fast [no-effect]"));
}

TEST(ResolveT1, TheGlobalBatchIsAMultipleOfTheMicroBatch) {
  EXPECT_TRUE(has(tiny().with("global-batch-size", {"6"}).with("micro-batch-size", {"4"}).error(),
                  "[T1]: must be a multiple of micro_batch_size = 4, got 6"));
  EXPECT_EQ(tiny().with("global-batch-size", {"8"}).with("micro-batch-size", {"4"}).error(),
            "accepted");
}

TEST(ResolveT2, TheLearningRateDoesNotRise) {
  EXPECT_TRUE(has(tiny().with("min-lr", {"1"}).error(), "--min-lr [T2]"));
  EXPECT_EQ(tiny().with("lr", {"1e-3"}).with("min-lr", {"1e-3"}).error(), "accepted");
}

TEST(ResolveT3, TheWarmUpEndsBeforeTheRun) {
  EXPECT_TRUE(has(tiny().with("train-iters", {"10"}).with("lr-warmup-iters", {"10"}).error(),
                  "--lr-warmup-iters [T3]"));
  EXPECT_EQ(tiny().with("train-iters", {"10"}).with("lr-warmup-iters", {"9"}).error(), "accepted");
}

TEST(ResolveT4, ARowHasPositions) {
  EXPECT_TRUE(has(tiny().with("max-position-embeddings", {"64"}).with("seq-length", {"65"}).error(),
                  "--seq-length [T4]"));
}

TEST(ResolveT5, TheIndexersCoefficientIsGiven) {
  Request request =
      Request().with("hf-config", {config_dir()}).with("lr", {"1e-3"}).with("train-iters", {"5"});
  EXPECT_TRUE(has(request.error(), "--dsa-indexer-loss-coeff [T5]: must be given"));
  EXPECT_EQ(
      Request(request).with("indexer-loss-coeff", {"0"}).resolve().config.train.indexer_loss_coeff,
      0.0);
  EXPECT_EQ(Request(request).with("indexer-loss", {"off"}).error(), "accepted");
}

TEST(ResolveT6, TheIndexerAloneNeedsItsLoss) {
  EXPECT_EQ(tiny().with("train-only-indexer", {"true"}).error(), "accepted");
  EXPECT_TRUE(has(tiny().with("train-only-indexer", {"true"}).with("indexer-loss", {"off"}).error(),
                  "[T6]"));
  EXPECT_TRUE(
      has(tiny().with("train-only-indexer", {"true"}).with("dsa-indexer-loss-coeff", {"0"}).error(),
          "[T6]"));
}

Request window_only() {
  Request request = tiny()
                        .with("csa-compress-ratios", {"0", "0"})
                        .with("num-layers", {"2"})
                        .with("mtp-num-layers", {"0"});
  return request.with("moe-n-hash-layers", {"0"});
}

TEST(ResolveU, ASettingWithoutItsPartIsRefusedOnTheCommandLine) {
  EXPECT_EQ(window_only().error(), "accepted");
  for (const char* flag : {"indexer-loss", "csa-attention"})
    EXPECT_TRUE(
        has(window_only().with(flag, {"dense"}).error(), " [U]: must have a layer with ratio 4"))
        << flag;
  EXPECT_TRUE(
      has(window_only().with("mtp-loss-scaling-factor", {"1"}).error(), "mtp_num_layers > 0"));
  EXPECT_TRUE(has(window_only().with("seq-aux-hash-layers", {"true"}).error(), "a hash layer"));
  EXPECT_TRUE(has(tiny().with("indexer-loss", {"off"}).with("indexer-teacher", {"joint"}).error(),
                  "indexer_loss other than off"));
  EXPECT_TRUE(has(tiny().with("valid-fraction", {"0"}).with("eval-interval", {"5"}).error(),
                  "valid_fraction > 0"));
  EXPECT_TRUE(has_note(window_only().file("indexer_loss = \"dense\"").resolve(), "is not used"));
}

TEST(Resolve, ThePrintedConfigurationReadsBackEqual) {
  const std::vector<Request> requests{tiny(),
                                      golden(),
                                      window_only(),
                                      tiny().with("rotary-scaling-factor", {"0"}),
                                      tiny()
                                          .with("recompute-csa-attention", {"true"})
                                          .with("recompute-checks", {"checked"})
                                          .with("recompute-mtp", {"skip"}),
                                      tiny()
                                          .with("fsdp-recompute-ratio", {"0.5"})
                                          .with("save-units", {"attn", "experts"})
                                          .with("save-units-allow-mutation", {"experts"}),
                                      tiny()
                                          .with("indexer-loss", {"off"})
                                          .with("adam-eps", {"1e-20"})
                                          .with("output", {"a \"b\"\\c"})
                                          .with("data", {"/x y"}),
                                      tiny()
                                          .with("moe-router-score-function", {"sigmoid"})
                                          .with("dsa-indexer-hadamard", {"false"})
                                          .with("threads", {"3"})};
  for (const Request& request : requests) {
    const ResolvedSettings first = request.resolve();
    const std::string printed = print_config(first);
    const ResolvedSettings second = Request().file(printed).resolve();
    EXPECT_TRUE(first.config == second.config) << printed;
  }
}

TEST(Resolve, SmallCommandsReadBackEqualToo) {
  const ResolvedSettings first = Request()
                                     .command("generate")
                                     .with("prompt", {"a\nb"})
                                     .with("seed", {"7"})
                                     .with("temperature", {"0"})
                                     .resolve();
  EXPECT_EQ(first.config.generate.seed, 7);
  EXPECT_EQ(Request().command("generate").file(print_config(first)).resolve().config, first.config);
  const ResolvedSettings compare = Request().command("compare").with("dtype", {"fp64"}).resolve();
  EXPECT_EQ(compare.config.compare.dtype, CompareDtype::Fp64);
  EXPECT_EQ(Request().command("compare").file(print_config(compare)).resolve().config,
            compare.config);
}

TEST(Resolve, ThePrintedConfigurationNamesSourcesAndRules) {
  const std::string printed = print_config(tiny().with("lr", {"1e-3"}).resolve());
  EXPECT_TRUE(has(printed, "# recipe tiny (command line)"));
  EXPECT_TRUE(has(printed, "lr = 0.001"));
  EXPECT_TRUE(
      has(printed, "[T5] dsa_indexer_loss_coeff is given where a ratio-4 layer is trained"));
  EXPECT_TRUE(has(printed, "# built-in") && has(printed, "# recipe tiny\n") &&
              has(printed, "# command line"));
}

TEST(Resolve, ResolvingTwiceGivesTheSame) {
  EXPECT_TRUE(tiny().resolve().config == tiny().resolve().config);
}

TEST(ResolveCheckpoint, BringsEverySettingThatIsNotGiven) {
  const CheckpointSettings saved =
      saved_by(tiny().with("lr", {"0.01"}).with("output", {"out/mine"}).with("max-seconds", {"5"}));
  const ResolvedSettings got =
      Request().with("load", {"out/mine/checkpoints"}).from(saved).resolve();
  EXPECT_EQ(got.config.train.lr, 0.01);
  EXPECT_EQ(got.config.train.output, "out/mine");
  EXPECT_EQ(got.config.model, recipe("tiny"));
  EXPECT_EQ(got.config.train.max_seconds, 0);  // of that process
  EXPECT_EQ(got.config.checkpoint.load, "out/mine/checkpoints");
  EXPECT_EQ(got.hub_kept, "{\"kept\":1}");
  EXPECT_EQ(got.provenance.at("lr"), "checkpoint");
}

TEST(ResolveCheckpoint, AMovedRunGoesOnWhereItLies) {
  const CheckpointSettings saved = saved_by(tiny().with("output", {"out/mine"}));
  const auto output_for = [&](const std::string& load) {
    return Request().with("load", {load}).from(saved).resolve().config.train.output;
  };
  EXPECT_EQ(output_for("/archive/mine/checkpoints"), "/archive/mine");
  EXPECT_EQ(output_for("copied"), "out/mine");
}

TEST(ResolveCheckpoint, WhatIsFreeMayBeGivenAnew) {
  const ResolvedSettings got = Request()
                                   .with("load", {"x"})
                                   .with("output", {"out/other"})
                                   .with("save-interval", {"7"})
                                   .with("recipe", {"tiny"})
                                   .from(saved_by(tiny()))
                                   .resolve();
  EXPECT_EQ(got.config.train.output, "out/other");
  EXPECT_EQ(got.config.checkpoint.save_interval, 7);
  EXPECT_TRUE(has_note(got, "recipe tiny is not used"));
}

TEST(ResolveCheckpoint, EveryDifferingKeyIsNamed) {
  const Request request = Request()
                              .with("load", {"x"})
                              .with("lr", {"0.5"})
                              .with("hidden-size", {"64"})
                              .with("seed", {"7"})
                              .from(saved_by(tiny().with("seed", {"3"})));
  const std::string error = request.error();
  EXPECT_TRUE(has(error, "--lr [E-CKPT-CONFIG]: must be lr = ")) << error;
  EXPECT_TRUE(has(error, "--allow-setting-changes")) << error;
  EXPECT_TRUE(has(error, "--hidden-size [E-CKPT-CONFIG]: must be hidden_size = ")) << error;
  EXPECT_TRUE(has(error, "--seed [E-CKPT-CONFIG]: must be seed = 3 as in checkpoint out/"))
      << error;
  EXPECT_TRUE(has(error, "--finetune")) << error;
  // What the run had left unset differs too.
  const Request unset = Request()
                            .with("load", {"x"})
                            .with("mtp-loss-scaling-factor-decayed", {"0.1"})
                            .from(saved_by(tiny()));
  EXPECT_TRUE(has(unset.error(),
                  "--mtp-loss-scaling-factor-decayed [E-CKPT-CONFIG]: must be "
                  "mtp_loss_scaling_factor_decayed not set"))
      << unset.error();
}

TEST(ResolveCheckpoint, TheSameValueMayBeRepeatedAndASchedulesMayBeChangedOnPurpose) {
  const CheckpointSettings saved = saved_by(tiny().with("lr", {"0.01"}));
  EXPECT_EQ(Request().with("load", {"x"}).with("lr", {"1e-2"}).from(saved).error(), "accepted");
  const Request changed =
      Request().with("load", {"x"}).with("lr", {"0.5"}).with("allow-setting-changes", {"true"});
  EXPECT_EQ(Request(changed).from(saved).resolve().config.train.lr, 0.5);
  EXPECT_TRUE(has(Request(changed).with("optimizer", {"muon"}).from(saved).error(),
                  "--optimizer [E-CKPT-CONFIG]"));
}

TEST(ResolveCheckpoint, TheRatiosMayBeRepeatedWithoutTheMtpBlocks) {
  const ModelConfig tiny_shape = recipe("tiny");
  ASSERT_GT(tiny_shape.num_mtp, 0);
  std::vector<std::string> words;
  for (int64_t i = 0; i < tiny_shape.num_layers; ++i)
    words.push_back(std::to_string(tiny_shape.ratios[static_cast<size_t>(i)]));
  EXPECT_EQ(Request()
                .with("load", {"x"})
                .with("csa-compress-ratios", words)
                .from(saved_by(tiny()))
                .error(),
            "accepted");
}

TEST(ResolveCheckpoint, FinetuneTakesTheShapeOnly) {
  const CheckpointSettings saved = saved_by(tiny().with("lr", {"0.01"}).with("num-experts", {"4"}));
  const ResolvedSettings got = Request()
                                   .with("load", {"x"})
                                   .with("finetune", {"true"})
                                   .with("recipe", {"tiny"})
                                   .from(saved)
                                   .resolve();
  EXPECT_EQ(got.config.model.num_experts, 4);
  EXPECT_EQ(got.config.train.lr, tiny().resolve().config.train.lr);
}

TEST(ResolveCheckpoint, TheRequestIsFoundInFilesAndOnTheCommandLine) {
  SettingsRequest request;
  EXPECT_EQ(requested_checkpoint(request).folder, "");
  request.command_line.push_back(
      {.name = "load", .words = {"there"}, .shown = "--load", .origin = kCommandLineOrigin});
  request.command_line.push_back({.name = "allow-fallback-checkpoint",
                                  .words = {"true"},
                                  .shown = "--allow-fallback-checkpoint",
                                  .origin = kCommandLineOrigin});
  EXPECT_EQ(requested_checkpoint(request).folder, "there");
  EXPECT_TRUE(requested_checkpoint(request).allow_fallback);
}

TEST(ResolveSchedules, TheirRulesAreChecked) {
  EXPECT_TRUE(has(tiny().with("lr-decay-iters", {"1"}).with("lr-warmup-iters", {"5"}).error(),
                  "--lr-decay-iters [T7]"));
  EXPECT_TRUE(has(tiny().with("lr-decay-style", {"WSD"}).error(), "--lr-wsd-decay-iters [T8]"));
  EXPECT_EQ(tiny().with("lr-decay-style", {"WSD"}).with("lr-wsd-decay-iters", {"10"}).error(),
            "accepted");
  EXPECT_TRUE(has(tiny().with("save-retain-interval", {"150"}).error(),
                  "--save-retain-interval [T9]: must be a multiple of save_interval = 100"));
  EXPECT_TRUE(has(tiny().with("muon-momentum", {"0.9"}).error(), "--muon-momentum [U]"));
}

}  // namespace
}  // namespace lethe
