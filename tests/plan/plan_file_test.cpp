#include "lethe/plan/plan_file.h"

#include <cstring>
#include <random>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "support/tiny_configs.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_error;
using test::TempFolder;
using test::tiny_a;

PlanSubject tiny() {
  return PlanSubject::of(tiny_a());
}

RecomputePlan rich_plan() {
  RecomputeConfig config;
  config.csa_attention = config.norm = config.mhc = true;
  config.mhc_layer_num = 2;
  config.norm_num_layers = 2;
  return make_recompute_plan(tiny(), config);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanFile, APlanSurvivesItsFileByteForByte) {
  const RecomputePlan plan = rich_plan();
  const TempFolder folder;
  save_plan(folder / "plan.json", tiny(), plan);
  EXPECT_EQ(folder.num_files(), 1u);  // the temporary file is gone
  const RecomputePlan read = load_plan(folder / "plan.json", tiny());
  EXPECT_EQ(read, plan);
  EXPECT_EQ(plan_text(tiny(), read), plan_text(tiny(), plan));
}

TEST(PlanFile, EveryModeSurvives) {
  RecomputePlan plan = rich_plan();
  plan.mhc_block = 2;
  plan.checks = PlanChecks::Bitwise;
  plan.mtp = MtpSelection::Include;
  for (ActRule& rule : plan.classes[0].acts) rule.restore_overlap = {};
  EXPECT_EQ(read_plan(plan_text(tiny(), plan), tiny(), "p"), plan);
  RecomputeConfig config;
  config.ratio = 0.5;
  config.mtp = MtpSelection::Skip;
  const RecomputePlan units = make_recompute_plan(tiny(), config, {"attn", "experts"});
  EXPECT_EQ(units.layer(0).save_units, (std::vector<std::string>{"attn", "experts"}));
  EXPECT_EQ(read_plan(plan_text(tiny(), units), tiny(), "p"), units);
  config.allow_mutation = {.kind = SaveSelection::Kind::Listed,
                           .units = {SaveUnit::Attn, SaveUnit::Mhc}};
  const RecomputePlan written = make_recompute_plan(tiny(), config, {"attn", "experts"});
  EXPECT_EQ(written.layer(0).allow_mutation, (std::vector<std::string>{"attn"}));  // of the kept
  EXPECT_TRUE(written.layer(3).allow_mutation.empty());  // not a whole layer
  EXPECT_EQ(read_plan(plan_text(tiny(), written), tiny(), "p"), written);
}

TEST(PlanFile, AFolderThatIsNotThereIsADataError) {
  const TempFolder folder;
  expect_error<DataError>([&] { save_plan(folder / "no" / "plan.json", tiny(), rich_plan()); },
                          {"no"});
  expect_error<DataError>([&] { (void)load_plan(folder / "absent.json", tiny()); },
                          {"absent.json"});
}

TEST(PlanFile, APlanOfAnotherModelIsRefusedByWhatDiffers) {
  const std::string text = plan_text(tiny(), rich_plan());
  ModelConfig other = tiny_a();
  other.hidden = 128;
  other.ratios[2] = 4;
  expect_error<RecomputeError>([&] { (void)read_plan(text, PlanSubject::of(other), "plan.json"); },
                               {"plan.json [plan-model]",
                                "hidden_size = 64 and not 128",
                                "compress_ratios = [0,4,8,4,0] and not [0,4,4,4,0]",
                                "--save-recompute-plan"});
}

TEST(PlanFile, APlanOfAnotherStageIsRefused) {
  PlanSubject staged = tiny();
  staged.pipeline.pipeline_ranks = 2;
  staged.pipeline.layout = parse_layout("Ett|ttmL");
  staged.holds_mtp = false;
  const std::string text = plan_text(tiny(), rich_plan());
  expect_error<RecomputeError>([&] { (void)read_plan(text, staged, "p"); },
                               {"pipeline_model_parallel_size = 1 and not 2", "Ett|ttmL"});
}

TEST(PlanFile, AFileThatBreaksACheckIsRefused) {
  const std::string text = replaced(plan_text(tiny(), rich_plan()),
                                    "\"release\": \"attn.oup.end\"",
                                    "\"release\": \"attn.q.end\"");
  expect_error<RecomputeError>([&] { (void)read_plan(text, tiny(), "p"); },
                               {"[SC1]", "attn.q.end"});
}

TEST(PlanFile, WhatIsMalformedIsNamed) {
  const std::string good = plan_text(tiny(), rich_plan());
  const auto refuse = [&good](const std::string& from,
                              const std::string& to,
                              std::initializer_list<const char*> parts) {
    const std::string text = replaced(good, from, to);
    expect_error<ConfigError>([&] { (void)read_plan(text, tiny(), "plan.json"); }, parts);
  };
  refuse("\"version\": 1", "\"version\": 2", {"[plan-file]", "version 1", "of version 2"});
  refuse("lethe-recompute-plan", "other", {"[plan-file]", "got 'other'"});
  refuse("\"mode\": \"engine\"", "\"mode\": \"magic\"", {"'mode'", "engine, reentrant", "'magic'"});
  refuse("\"mode\": \"engine\",", "", {"'mode'", "must be given"});
  refuse("\"mode\": \"engine\"", "\"mode\": 3", {"'mode' must be a string, got 3"});
  refuse("\"mtp\": \"include\",", "\"mtp\": \"include\", \"x\": 1,", {"'x'", "is unknown"});
  refuse("\"nested\": false", "\"nested\": 0", {"'classes[0].nested'", "true or false"});
  refuse("\"allow_mutation\": [],", "", {"'classes[0].allow_mutation'", "must be given"});
  refuse("\"subgraph\": \"attn_pre\"",
         "\"subgraph\": \"router\"",
         {"'classes[0].regions[0].subgraph' must be a sub-graph, got 'router'"});
  refuse("\"id\": \"layer_input.0\"",
         "\"id\": \"layer_input\"",
         {"'classes[0].acts[0].id' must be an activation, got 'layer_input'"});
  refuse("\"last_read\": \"attn.post.end\"",
         "\"last_read\": \"embed.end\"",
         {"must be an event of a layer, got 'embed.end'"});
  refuse("\"restore\": \"pull\"", "\"restore\": \"pull now\"", {"'pull' or a kind and an event"});
  refuse("\"restore\": \"pull\"", "\"restore\": \"explicit\"", {"'pull' or a kind and an event"});
  refuse("\"full_chunk\": 1", "\"full_chunk\": 4294967296", {"'full_chunk'", "at most 4294967295"});
  refuse("\"mhc_block\": 2", "\"mhc_block\": -1", {"'mhc_block'", "integer >= 0"});
  expect_error<ConfigError>([] { (void)read_plan("{", tiny(), "p"); }, {"p: must be JSON"});
  expect_error<ConfigError>([] { (void)read_plan("[]", tiny(), "p"); }, {"must be a JSON object"});
}

// Whatever a file says, the answer is a plan that passes its checks, or an error.
TEST(PlanFile, DamagedTextsAreAnErrorOrASoundPlan) {
  const std::string good = plan_text(tiny(), rich_plan());
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) text[random() % text.size()] = "019\"{}[],:xq."[random() % 13];
    try {
      (void)read_plan(text, tiny(), "p");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(PlanFile, HashesTellPlansApart) {
  RecomputePlan plan = rich_plan();
  const std::string hash = plan_hash(tiny(), plan);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(plan_hash(tiny(), rich_plan()), hash);
  plan.classes[0].acts[1].release = Event::MlpPostEnd;
  EXPECT_NE(plan_hash(tiny(), plan), hash);
}

}  // namespace
}  // namespace lethe
