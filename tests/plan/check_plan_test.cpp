#include "lethe/plan/check_plan.h"

#include <algorithm>
#include <functional>

#include "support/expect_error.h"
#include "support/tiny_configs.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_error;
using test::tiny_a;
using Id = SubgraphId;

constexpr size_t kCsaClass = 1;  // of the layers of tiny-A, a ratio-4 layer

/// A plan that is sound until a test breaks it.
class CheckPlan : public ::testing::Test {
 protected:
  CheckPlan() : subject(PlanSubject::of(tiny_a())) {
    config.csa_attention = config.norm = config.mhc = true;
  }

  void make() { plan = make_recompute_plan(subject, config); }

  LayerPlan& csa_layer() { return plan.classes[kCsaClass]; }

  ActRule& act(Id id, uint8_t out = 0) { return act_of(csa_layer(), id, out); }

  static ActRule& act_of(LayerPlan& layer, Id id, uint8_t out = 0) {
    return *std::find_if(layer.acts.begin(), layer.acts.end(), [&](const ActRule& rule) {
      return rule.id == ActId{id, out};
    });
  }

  RegionRule& region(Id id) {
    auto& regions = csa_layer().regions;
    return *std::find_if(
        regions.begin(), regions.end(), [&](const RegionRule& r) { return r.subgraph == id; });
  }

  void remove_region(Id id) {
    std::erase_if(csa_layer().regions, [&](const RegionRule& r) { return r.subgraph == id; });
  }

  /// The plan has exactly these violations: the parts of each, in order.
  void expect_problems(std::initializer_list<std::initializer_list<const char*>> wanted) {
    const std::vector<std::string> problems = plan_problems(subject, plan);
    ASSERT_EQ(problems.size(), wanted.size()) << ::testing::PrintToString(problems);
    size_t i = 0;
    for (const auto& parts : wanted) {
      for (const char* part : parts)
        EXPECT_NE(problems[i].find(part), std::string::npos) << part << " in " << problems[i];
      ++i;
    }
  }

  PlanSubject subject;
  RecomputeConfig config;
  RecomputePlan plan;
};

TEST_F(CheckPlan, EveryChoiceOfFlagsGivesASoundPlan) {
  int plans = 0;
  for (int bits = 0; bits < 64; ++bits) {
    config = {};
    config.csa_attention = (bits & 1) != 0;
    config.norm = (bits & 2) != 0;
    config.mhc = (bits & 4) != 0;
    config.csa_keep_output = (bits & 8) != 0;
    config.mtp = (bits & 16) != 0 ? MtpSelection::Skip : MtpSelection::Include;
    config.ratio = (bits & 32) != 0 ? std::optional(0.4) : std::nullopt;
    for (config.mhc_layer_num = 1; config.mhc_layer_num <= 4; ++config.mhc_layer_num) {
      for (const bool has_loss : {true, false}) {
        subject.operators.indexer_loss = has_loss;
        make();
        EXPECT_EQ(plan_problems(subject, plan), std::vector<std::string>{});
        ++plans;
      }
    }
  }
  EXPECT_EQ(plans, 512);
}

// The hooks of a plan are safe on their own too: parity mode has nothing else. Inside of an mHC
// block the next layer pulls the output of the one before; no hook can, so parity mode is refused.
TEST_F(CheckPlan, DefaultHooksAreSafeInHookOnlyMode) {
  int sound = 0, refused = 0;
  for (int bits = 0; bits < 64; ++bits) {
    config = {};
    config.csa_attention = (bits & 1) != 0;
    config.norm = (bits & 2) != 0;
    config.mhc = (bits & 4) != 0;
    config.csa_keep_output = (bits & 8) != 0;
    config.mtp = (bits & 16) != 0 ? MtpSelection::Skip : MtpSelection::Include;
    subject.operators.indexer_loss = (bits & 32) != 0;
    for (config.mhc_layer_num = 1; config.mhc_layer_num <= 4; ++config.mhc_layer_num) {
      SCOPED_TRACE(testing::Message() << bits << ", blocks of " << config.mhc_layer_num);
      make();
      plan.mode = RecomputeMode::Reentrant;
      const std::vector<std::string> problems = plan_problems(subject, plan);
      const bool has_blocks = config.mhc && config.mhc_layer_num > 1;
      EXPECT_EQ(problems.empty(), !has_blocks) << testing::PrintToString(problems);
      for (const std::string& problem : problems)
        EXPECT_NE(problem.find("'out' must be restored by the gradient of a tensor that has one, "
                               "got pull"),
                  std::string::npos)
            << problem;
      ++(has_blocks ? refused : sound);
    }
  }
  EXPECT_EQ(sound, 160);
  EXPECT_EQ(refused, 96);
}

TEST_F(CheckPlan, AViolationIsARecomputeErrorWithEveryOne) {
  make();
  act(Id::QNorm).release = Event::AttnQEnd;
  act(Id::Sparse).release = Event::AttnQEnd;
  expect_error<RecomputeError>([&] { check_plan(subject, plan); },
                               {"2 violations of the recompute plan", "'q' is", "'o' is"});
}

// Also T3.5: o-up may not be released before mHC post has read it.
TEST_F(CheckPlan, SC1ReleaseBeforeTheLastRead) {
  make();
  act(Id::Oup).release = Event::AttnOupEnd;
  expect_problems(
      {{"recompute plan [SC1] main/ratio4/hash csa+q_norm+norm+mhc: 'attn_out' is "
        "released at attn.oup.end but still read until attn.post.end; move the release "
        "or keep the activation"}});
  act(Id::Oup).release = Event::Never;
  expect_problems({{"[SC1]", "released at never but still read until attn.post.end"}});
}

TEST_F(CheckPlan, SC2ReaderAfterTheRelease) {
  make();
  act(Id::Oup).release = act(Id::Oup).last_read = Event::AttnOupEnd;
  expect_problems({{"[SC2]", "'attn_out' is released at attn.oup.end", "attn.post.end reads it"}});
}

// T4.1, T4.3: the cast of an fp32 tensor is that tensor.
TEST_F(CheckPlan, SC3AliasesAreReleasedTogether) {
  subject.operators.compressor_casts = true;
  make();
  expect_problems({});
  EXPECT_EQ(csa_layer().find(Id::CompressCast), nullptr);
  EXPECT_EQ(act(Id::CompressCast).keep, Keep::Release);
  act(Id::CompressCast).release = Event::AttnPostEnd;
  expect_problems({{"[SC3]",
                    "'normed_attn' and 'x32' may share one storage",
                    "got attn.compress.end and attn.post.end"},
                   {"[SC3]", "'x32' and 'normed_attn'"}});
  act(Id::CompressCast).keep = Keep::Keep;
  expect_problems({{"[SC3]", "'normed_attn' and 'x32'", "got attn.compress.end and kept"}});
}

// T4.11, T4.12: an unsafe hook is refused in hook-only mode and a late prefetch in engine mode.
TEST_F(CheckPlan, SC4HookThatComesTooLate) {
  make();
  plan.mode = RecomputeMode::Reentrant;
  act(Id::MlpNorm).restore.at = Event::MlpRouterEnd;
  expect_problems({{"[SC4]",
                    "'normed_mlp' is restored by the gradient of mlp.router.end",
                    "backward of mlp.experts reads it before"}});
  act(Id::MlpNorm).restore = {Trigger::Kind::OnGradOf, Event::AttnIndexerEnd};
  EXPECT_NE(plan_problems(subject, plan).front().find("[SC4]"), std::string::npos);
  act(Id::MlpNorm).restore = {};
  EXPECT_NE(plan_problems(subject, plan).front().find("got pull"), std::string::npos);
  plan.mode = RecomputeMode::Engine;
  expect_problems({});
}

TEST_F(CheckPlan, SC5EveryReleasedActivationHasARegion) {
  make();
  remove_region(Id::Sparse);
  expect_problems({{"[SC5]", "'o' is released, but no enabled region makes it"},
                   {"[SC5]", "'lse'"},
                   {"[SC5]", "'slot_mass'"}});
}

TEST_F(CheckPlan, SC5ARegionListsEveryInput) {
  make();
  region(Id::Sparse).inputs.pop_back();
  expect_problems(
      {{"[SC5]", "region 'sparse' must list the 4 inputs and 3 outputs", "got 3 and 3"}});
}

TEST_F(CheckPlan, SC5InputsComeBackNoLaterThanOutputs) {
  make();
  plan.mode = RecomputeMode::Reentrant;
  act(Id::AttnPre).restore.at = Event::AttnNormEnd;
  expect_problems(
      {{"[SC5]", "region 'attn_norm'", "gradient of attn.bda.end", "'y_attn' at attn.norm.end"}});
}

TEST_F(CheckPlan, SC5FullNeedsTheRegionAroundIt) {
  make();
  act(Id::QDown).keep = Keep::Full;
  expect_problems({{"[SC5]", "'q_compressed' is left to a region around the layer"}});
}

TEST_F(CheckPlan, SC6BuffersAndInputsAreNotReleased) {
  subject.operators.expert_parallel = true;
  make();
  for (const Id id : {Id::Dispatch, Id::LayerInput}) {
    act(id).keep = Keep::Release;
    act(id).release = Event::MlpPostEnd;
    act(id).restore_overlap = {};
  }
  expect_problems({{"[SC6]", "'x_in' belongs to the layer before"},
                   {"[SC6]", "'dispatched' is a buffer of a collective"}});
}

TEST_F(CheckPlan, SC7ACollectiveLimitsTheEarlyStop) {
  subject.operators.expert_parallel = true;
  config = {};
  config.granularity = RecomputeGranularity::Selective;
  config.modules = {"moe"};
  make();
  EXPECT_EQ(region(Id::Moe).stop, ReplayStop::AfterLastCollective);
  expect_problems({});
  region(Id::Moe).stop = ReplayStop::On;
  expect_problems({{"[SC7]", "region 'moe' has a collective", "stop = on"}});
  region(Id::Moe).stop = ReplayStop::Off;
  expect_problems({});
  region(Id::Moe).has_collective = false;
  expect_problems({{"[SC7]", "has_collective = false"}});
}

TEST_F(CheckPlan, SC8RandomNumbersAreDeclared) {
  subject.operators.hidden_dropout = true;
  make();
  EXPECT_TRUE(region(Id::AttnBda).has_rng);
  region(Id::AttnBda).has_rng = false;
  expect_problems({{"[SC8]", "region 'attn_bda' draws random numbers"}});
}

TEST_F(CheckPlan, SC9WholeLayerAndPartsExcludeEachOther) {
  LayerChoice choice;
  choice.full = choice.nested = true;
  choice.parts.csa = true;
  make();
  csa_layer() = make_layer_plan(csa_layer().kind, subject.operators, choice);
  expect_problems({});
  csa_layer().nested = false;
  expect_problems({{"[SC9]", "the whole layer and 4 finer regions", "nested = true"}});
}

TEST_F(CheckPlan, SC9RegionsDoNotContainEachOther) {
  config.mhc = false;
  make();
  csa_layer().regions.push_back(
      {.subgraph = Id::QUp, .inputs = {{Id::QDown, 0}}, .outputs = {{Id::QUp, 0}}});
  expect_problems({{"[SC9]", "region 'q_up_norm' contains 'q_up'"}});
}

TEST_F(CheckPlan, SC10SkippedMtpHasNoRegions) {
  make();
  plan.mtp = MtpSelection::Skip;
  expect_problems({{"[SC10]", "MTP0 mtp/window csa+q_norm+norm+mhc", "mtp = skip"}});
}

TEST_F(CheckPlan, SC11ExcludedPartsAreNotEnabled) {
  make();
  csa_layer().regions.push_back({.subgraph = Id::CompressCast, .inputs = {}, .outputs = {}});
  expect_problems({{"[SC11]", "region 'compress_cast'", "the fused compressor casts nothing"}});
  make();
  plan.classes[0].regions.push_back({.subgraph = Id::Indexer, .inputs = {}, .outputs = {}});
  expect_problems({{"[SC11]", "main/window/hash", "region 'indexer'", "no such part"}});
}

TEST_F(CheckPlan, SC12HooksStayInTheirPartOfTheOverlapPath) {
  make();
  act(Id::MlpNorm).restore_overlap = act(Id::MlpNorm).restore;
  expect_problems({{"[SC12]", "'normed_mlp' is read in the part 'experts'", "part 'combine'"}});
  act(Id::MlpNorm).restore_overlap = {};
  expect_problems({});
}

TEST_F(CheckPlan, SC14BlocksHaveALengthAndAnEnd) {
  config.mhc_layer_num = 2;
  make();
  expect_problems({});
  plan.mhc_block = 1;
  expect_problems(
      {{"[SC14]", "L0", "at most mhc_block = 1 layers, got 2"}, {"[SC14]", "L2", "got 2"}});
  plan.mhc_block = 0;
  EXPECT_NE(plan_problems(subject, plan).front().find("got 0 and 1"), std::string::npos);
}

TEST_F(CheckPlan, SC14ABlockDoesNotCrossAStage) {
  config.mhc_layer_num = 4;
  make();
  std::swap(plan.layer_to_class[1], plan.layer_to_class[3]);
  plan.classes[plan.layer_to_class[1]].kind = {.ratio = 4, .hash = true};
  plan.classes[plan.layer_to_class[3]].kind = {.ratio = 4};
  const std::vector<std::string> problems = plan_problems(subject, plan);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("[SC14] L3"), std::string::npos) << problems.front();
  EXPECT_NE(problems.front().find("no block crosses a stage"), std::string::npos);
}

// T4.25 is the simulator's; here the plan that would need it is refused: SC14 and SC17.
TEST_F(CheckPlan, SC17APullOfABlockReplaysMhcOnly) {
  config.mhc_layer_num = 2;
  make();
  LayerPlan& inner = plan.classes[plan.layer_to_class[0]];
  ActRule& out = act_of(inner, Id::Oup);
  out.keep = Keep::Release;
  out.release = Event::AttnPostEnd;
  expect_problems(
      {{"[SC14] L0", "'attn_out' of an inner layer"},
       {"[SC17] L1", "L1.attn_pre <- L0.mlp_post <- L0.attn_post <- L0.oup; keep an activation"}});
}

TEST_F(CheckPlan, SC17ChunksOfWholeLayersGoOn) {
  config = {};
  config.granularity = RecomputeGranularity::Full;
  config.method = RecomputeMethod::Uniform;
  config.num_layers = 2;
  make();
  expect_problems({});
  plan.full_chunk = 1;
  expect_problems({{"[SC17] L0", "at most full_chunk = 1"}, {"[SC17] L2", "got 2"}});
  plan.full_chunk = 2;
  act_of(plan.classes[plan.layer_to_class[1]], Id::LayerInput).keep = Keep::Keep;
  expect_problems({{"[SC17] L0", "'out' inside a chunk and the next 'x_in' kept"}});
  make();
  act_of(plan.classes[plan.layer_to_class[0]], Id::LayerInput).keep = Keep::Full;
  expect_problems({{"[SC17] L0", "'x_in' must be kept in the first layer"}});
}

// Spec 5 6.2: an activation is given back or swapped, and what backward needs first stays.
TEST_F(CheckPlan, SC6SwappedInputsAreNeitherGivenBackNorNeededFirst) {
  const auto swapped = [this](const RecomputeConfig& wish) {
    plan = make_recompute_plan(subject, wish, {}, /*swap_layer_inputs=*/true);
    std::string layers;
    for (size_t i = 0; i < plan.layer_to_class.size(); ++i)
      if (plan.layer(i).swaps_input()) layers += std::to_string(i);
    expect_problems({});
    return layers;
  };
  EXPECT_EQ(swapped({}), "012");  // of 4 layers and an MTP block
  EXPECT_EQ(swapped({.mhc = true, .mhc_layer_num = 2}), "0");
  const RecomputeConfig chunks{.granularity = RecomputeGranularity::Full,
                               .method = RecomputeMethod::Uniform,
                               .num_layers = 2};
  EXPECT_EQ(swapped(chunks), "0");
  EXPECT_EQ(plan.input_source(1), 0U);
  EXPECT_EQ(plan.input_source(2), 2U);
  EXPECT_EQ(plan.input_source(3), 2U);
  EXPECT_EQ(plan.input_source(4), 4U);
  for (LayerPlan& layer : plan.classes) act_of(layer, Id::LayerInput).keep = Keep::Swap;
  const std::vector<std::string> problems = plan_problems(subject, plan);
  const auto has = [&problems](const char* layer, const char* reason) {
    return std::any_of(problems.begin(), problems.end(), [&](const std::string& text) {
      return text.find(layer) != std::string::npos && text.find("[SC6]") != std::string::npos &&
             text.find(reason) != std::string::npos;
    });
  };
  EXPECT_TRUE(has("L1 ", "the layer before gives it back"));
  EXPECT_TRUE(has("L3 ", "backward comes first"));
  EXPECT_TRUE(has("MTP0 ", "MTP block"));
}

TEST_F(CheckPlan, SC16ThePeakFitsTheBudget) {
  make();
  EXPECT_TRUE(plan_problems(subject, plan, PlanBudget{.budget_bytes = 8, .predicted_peak_bytes = 8})
                  .empty());
  const auto problems =
      plan_problems(subject, plan, PlanBudget{.budget_bytes = 8, .predicted_peak_bytes = 9});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("[SC16] budget: the predicted peak must be <= 8 bytes, got 9"),
            std::string::npos);
}

TEST_F(CheckPlan, R625ChoicesAreKept) {
  make();
  act(Id::Router).keep = Keep::Release;
  act(Id::Router).release = Event::MlpPostEnd;
  EXPECT_NE(plan_problems(subject, plan).front().find("[R6.25]"), std::string::npos);
  EXPECT_NE(plan_problems(subject, plan).front().find("'routing' is a choice"), std::string::npos);
}

TEST_F(CheckPlan, SC0ThePlanDescribesTheseLayers) {
  make();
  plan.layer_to_class.pop_back();
  expect_problems({{"[SC0]", "each of 5 layers, got 4"}});
  make();
  plan.layer_to_class[0] = 9;
  expect_problems({{"[SC0]", "L0 must have one of", "got number 9"}});
  make();
  plan.layer_to_class[0] = kCsaClass;
  expect_problems({{"[SC0]", "L0 is main/window/hash, got a plan of main/ratio4/hash"}});
  make();
  csa_layer().acts.pop_back();
  expect_problems({{"[SC0]", "must have a rule for 'out'"}});
  make();
  csa_layer().acts.push_back(csa_layer().acts.front());
  expect_problems({{"[SC0]", "'x_in'", "once"}});
  make();
  csa_layer().regions.push_back(csa_layer().regions.front());
  expect_problems({{"[SC0]", "region 'attn_pre' must stand once"}});
  make();
  csa_layer().save_units = {"attn"};
  expect_problems({{"[SC0]", "save units need the region 'layer'"}});
  make();
  csa_layer().allow_mutation = {"attn"};
  expect_problems({{"[SC0]", "allow_mutation must name save units of the class, got 'attn'"}});
  make();
  act(Id::Kv).keep = Keep::Swap;
  expect_problems({{"[SC0]", "only 'x_in' may be swapped, got 'kv'"}});
  make();
  plan.classes.push_back(plan.classes.front());
  expect_problems({{"[SC0]", "must stand once, got it twice"}});
}

TEST_F(CheckPlan, SC15AndExclusionsAreNotes) {
  subject.operators.q_norm_saves_output = true;
  config.norm = false;
  make();
  act(Id::MlpPre).release = Event::MlpPostEnd;
  std::string all;
  for (const std::string& note : plan_notes(subject, plan)) all += note + "\n";
  for (const char* part :
       {"[SC15] main/ratio4/hash csa+mhc: 'y_mlp' is released at mlp.post.end, later than its last "
        "read at mlp.norm.end",
        "[SC11] main/ratio4/hash csa+mhc: 'compress_cast' is no region: the fused compressor casts "
        "nothing",
        "region 'q_up' frees nothing: no node saves its output"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  expect_problems({});
}

// DC3, DC4, DC5.
TEST(StepCheck, CountsOfAStepAreCompared) {
  EXPECT_TRUE(step_problems({}).empty());
  StepCount step;
  step.regions = {{.id = "L0.mb0.sparse", .replays = 1, .released_bytes = 8, .predicted_bytes = 8},
                  {.id = "L0.mb1.sparse", .replays = 0, .had_backward = false}};
  EXPECT_TRUE(step_problems(step).empty());
  step.regions[0].replays = 2;
  step.regions[0].released_bytes = 4;
  step.live_regions = 1;
  step.released_storages = 2;
  step.swap_entries = 3;
  const std::vector<std::string> problems = step_problems(step);
  ASSERT_EQ(problems.size(), 5u);
  const char* wanted[] = {"[DC3]: L0.mb0.sparse must be replayed 1 times, got 2",
                          "[DC5]: L0.mb0.sparse must release 8 bytes as predicted, got 4",
                          "[DC4]: no live regions may be left at the end of a step, got 1",
                          "[DC4]: no released storages may be left at the end of a step, got 2",
                          "[DC4]: no swap entries may be left at the end of a step, got 3"};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NE(problems[i].find(wanted[i]), std::string::npos) << problems[i];
}

TEST(StepCheck, WhatSaveUnitsKeepIsCompared) {
  StepCount step;
  step.regions = {{.id = "L0.mb0.layer", .replays = 1, .kept_bytes = 8, .predicted_kept_bytes = 8}};
  EXPECT_TRUE(step_problems(step).empty());
  step.regions[0].kept_bytes = 0;
  const std::vector<std::string> problems = step_problems(step);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("[DC5]: L0.mb0.layer must keep 8 bytes for its save units as "
                             "predicted, got 0"),
            std::string::npos)
      << problems[0];
}

}  // namespace
}  // namespace lethe
