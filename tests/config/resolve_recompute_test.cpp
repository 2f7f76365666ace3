#include <algorithm>

#include "support/settings_request.h"
#include <gtest/gtest.h>

#include "lethe/config/recompute_rules.h"

// Settings of recompute through the one resolver of every command: command-line spec 7.4, spec
// 3 6.5.
namespace lethe {
namespace {

using test::has;
using test::has_note;
using test::Request;
using test::saved_by;
using test::tiny;

using Flags = std::vector<std::vector<std::string>>;

Request with(Request request, const Flags& flags) {
  for (const auto& words : flags)
    request.with(words[0], std::vector<std::string>(words.begin() + 1, words.end()));
  return request;
}

const std::vector<std::string> kCsa = {"recompute-csa-attention", "true"},
                               kFull = {"recompute-granularity", "full"},
                               kBlock = {"recompute-method", "block"},
                               kSelective = {"recompute-granularity", "selective"},
                               kRatio = {"recompute-ratio", "0.5"};

TEST(ResolveRecompute, NothingIsRecomputedByDefault) {
  EXPECT_EQ(tiny().resolve().config.recompute, RecomputeConfig{});
}

TEST(ResolveRecompute, FlagsAndFilesReachTheConfiguration) {
  const RecomputeConfig got =
      with(tiny().file("[memory]\nmhc_recompute = true\nrecompute_checks = \"checked\""),
           {kCsa, {"recompute-stats", "true"}})
          .resolve()
          .config.recompute;
  EXPECT_TRUE(got.mhc && got.csa_attention && got.stats);
  EXPECT_EQ(got.checks, PlanChecks::Checked);
}

// T4.24: a switch that nobody reads is refused, with its neighbour.
TEST(ResolveRecompute, UnknownKeysAreRefused) {
  EXPECT_TRUE(has(tiny().with("recompute-csa", {"true"}).error(), "--recompute-csa [unknown]"));
  EXPECT_TRUE(has(tiny().file("[memory]\nrecompute_rato = 0.5").error(),
                  "did you mean 'recompute_ratio'?"));
  EXPECT_TRUE(has(tiny().file("[memory]\nsave_attn = true").error(), "[unknown]"));
}

// Every pair that contradicts itself, by the rule that says so.
TEST(ResolveRecompute, ContradictionsAreRefusedByTheirRule) {
  const std::vector<std::pair<const char*, Flags>> cases = {
      {"RC1", {kFull, {"recompute-num-layers", "2"}}},
      {"RC2", {kBlock}},
      {"RC3", {kFull, kBlock}},
      {"RC4", {kSelective, {"recompute-num-layers", "2"}}},
      {"RC5", {kFull, kBlock, {"recompute-num-layers", "99"}}},
      {"RC6", {{"enable-recompute-layers-per-pp-rank", "true"}}},
      {"RC7", {{"recompute-modules", "moe"}}},
      {"RC8", {kSelective, {"recompute-modules", "mlp", "mhc"}}},
      {"RC10", {{"recompute-csa-keep-output", "true"}}},
      {"RC11", {{"mhc-recompute-layer-num", "2"}}},
      {"RC12", {{"recompute-norm-num-layers", "1"}}},
      {"RC13", {{"save-units", "attn"}}},
      {"RC14", {{"save-units", "attn"}, kCsa}},
      {"RC15", {kRatio, {"save-units-missing", "warn"}}},
      {"RC16", {kFull, kBlock, {"recompute-num-layers", "2"}, kRatio}},
      {"RC17", {{"recompute-plan", "p.json"}, kCsa}},
      {"RC18", {kSelective, {"recompute-modules", "moe", "shared_experts"}}},
      {"RC19", {kRatio, {"save-units-allow-mutation", "attn"}}}};
  for (const RunRule& rule : recompute_rules())
    EXPECT_TRUE(std::any_of(
        cases.begin(), cases.end(), [&](const auto& c) { return std::string(c.first) == rule.id; }))
        << rule.id << " has no case";
  for (const auto& [id, flags] : cases) {
    const std::string error = with(tiny(), flags).error();
    EXPECT_TRUE(has(error, " [" + std::string(id) + "]: must ")) << error;
  }
}

TEST(ResolveRecompute, SettingsOfTheHostTierNeedASwap) {
  const Flags swap = {{"swap-layer-input", "true"}}, plan = {{"recompute-plan", "p.json"}};
  for (const std::vector<std::string>& flag : {std::vector<std::string>{"offload-budget-mb", "64"},
                                               {"offload-folder", "scratch"},
                                               {"swap-prefetch-distance", "2"},
                                               {"swap-min-bytes", "1"}}) {
    EXPECT_TRUE(has(with(tiny(), {flag}).error(), "[U]: must have swap_layer_input or a plan file"))
        << flag[0];
    EXPECT_EQ(with(tiny(), {swap[0], flag}).error(), "accepted") << flag[0];
    EXPECT_EQ(with(tiny(), {plan[0], flag}).error(), "accepted") << flag[0];
  }
  EXPECT_TRUE(has(with(tiny(), {swap[0], plan[0]}).error(), "[RC17]"));
}

// The example of command-line spec 7.7.
TEST(ResolveRecompute, EveryBrokenRuleIsReportedAtOnce) {
  const std::string error =
      tiny().file("[memory]\nrecompute_csa_attention = true\nsave_units = [\"attn\"]").error();
  EXPECT_TRUE(has(error, "2 errors:") && has(error, "[RC13]") && has(error, "[RC14]")) << error;
}

TEST(ResolveRecompute, WhatNeedsReplaysIsRefusedWithoutThem) {
  for (const Flags& flags : {Flags{{"recompute-checks", "checked"}},
                             Flags{{"recompute-stats", "true"}},
                             Flags{{"recompute-mtp", "skip"}}}) {
    EXPECT_TRUE(has(with(tiny(), flags).error(), "[U]: must have something that is recomputed"))
        << flags[0][0];
    Flags both = flags;
    both.push_back(kCsa);
    EXPECT_EQ(with(tiny(), both).error(), "accepted") << flags[0][0];
  }
  EXPECT_TRUE(has_note(tiny().file("recompute_stats = true").resolve(), "recompute_stats ("));
  EXPECT_EQ(with(tiny(), {{"swap-layer-input", "true"}, {"recompute-checks", "checked"}}).error(),
            "accepted");
  // A plan file recomputes as well; what is written and checked is no part of the choice.
  EXPECT_EQ(with(tiny(),
                 {{"recompute-plan", "p.json"},
                  {"recompute-checks", "checked"},
                  {"recompute-stats", "true"},
                  {"save-recompute-plan", "q.json"}})
                .error(),
            "accepted");
}

// R6.28 to R6.32.
TEST(ResolveRecompute, RatiosMoveFromTheirDeprecatedPlaces) {
  const ResolvedSettings moved = tiny().with("fsdp-recompute-ratio", {"0.5"}).resolve();
  EXPECT_EQ(moved.config.recompute.ratio, 0.5);
  EXPECT_FALSE(moved.config.recompute.fsdp_ratio);
  EXPECT_TRUE(has_note(moved, "--fsdp-recompute-ratio is deprecated"));
  EXPECT_EQ(moved.provenance.at("recompute_ratio"), "command line");
  EXPECT_EQ(moved.provenance.count("fsdp_recompute_ratio"), 0u);
  // Rules see where it is now.
  EXPECT_EQ(with(tiny(), {{"fsdp-recompute-ratio", "0.5"}, {"save-units", "attn"}}).error(),
            "accepted");
  for (const char* again : {"0.5", "0.25"})
    EXPECT_TRUE(
        has(with(tiny(), {{"fsdp-recompute-ratio", "0.5"}, {"recompute-ratio", again}}).error(),
            "--fsdp-recompute-ratio [R6.30]"))
        << again;
  // Unset is nothing, not 1: neither place of an untouched run has a value, and nothing is said.
  const ResolvedSettings untouched = tiny().resolve();
  EXPECT_FALSE(untouched.config.recompute.ratio || untouched.config.recompute.fsdp_ratio);
  EXPECT_FALSE(has_note(untouched, "deprecated"));
  EXPECT_TRUE(has(print_config(untouched), "# recompute_ratio is not set"));
}

TEST(ResolveRecompute, TheRulesArePrinted) {
  const std::string printed = print_config(tiny().resolve());
  for (const RunRule& rule : recompute_rules())
    EXPECT_TRUE(has(printed, "[" + std::string(rule.id) + "] " + rule.text)) << rule.id;
}

Request resume(const CheckpointSettings& saved) {
  return Request().with("load", {"x"}).from(saved);
}

TEST(ResolveRecompute, AResumeRecomputesAsBeforeOrChoosesAnew) {
  const CheckpointSettings saved =
      saved_by(with(tiny(), {kFull, kBlock, {"recompute-num-layers", "2"}}));
  const RecomputeConfig before = resume(saved).resolve().config.recompute;
  EXPECT_EQ(before.granularity, RecomputeGranularity::Full);
  EXPECT_EQ(before.num_layers, 2);

  // The old choice goes as a whole: nobody could unset its number of layers.
  const ResolvedSettings anew = with(resume(saved), {kCsa}).resolve();
  RecomputeConfig csa;
  csa.csa_attention = true;
  EXPECT_EQ(anew.config.recompute, csa);
  EXPECT_TRUE(has_note(anew, "recompute_num_layers = 2 of the checkpoint is not taken"));
  EXPECT_EQ(with(resume(saved), {{"recompute-granularity", "none"}}).resolve().config.recompute,
            RecomputeConfig{});
  EXPECT_EQ(with(resume(saved), {{"recompute-plan", "p.json"}}).error(), "accepted");
}

TEST(ResolveRecompute, ReportsOfAResumeLeaveItsChoiceAlone) {
  const CheckpointSettings saved = saved_by(
      with(tiny(), {kCsa, {"save-recompute-plan", "p.json"}, {"recompute-stats", "true"}}));
  const RecomputeConfig got =
      with(resume(saved), {{"recompute-checks", "checked"}}).resolve().config.recompute;
  EXPECT_TRUE(got.csa_attention && got.stats);
  EXPECT_EQ(got.checks, PlanChecks::Checked);
  EXPECT_EQ(got.save_plan_file, "");  // of the process that wrote it
}

TEST(ResolveUnits, TakesTheShapeOfAModelAndNoOtherSetting) {
  const ResolvedSettings got = tiny().command("units").with("json", {"true"}).resolve();
  EXPECT_EQ(got.config.model, tiny().resolve().config.model);
  EXPECT_TRUE(got.config.units.json);
  EXPECT_TRUE(has(tiny().command("units").with("lr", {"1"}).error(),
                  "--lr [command]: must be a setting of lethe units"));
  EXPECT_TRUE(has(Request().command("units").error(), "--num-layers [required]"));
  EXPECT_FALSE(has(Request().command("units").error(), "--lr"));
  EXPECT_NE(tiny().command("units").with("moe-router-topk", {"9999"}).error(), "accepted");
  EXPECT_TRUE(has(print_config(tiny().command("units").resolve()), "num_layers = 4"));
}

}  // namespace
}  // namespace lethe
