#include "lethe/plan/recompute_plan.h"

#include <algorithm>

#include "support/expect_error.h"
#include "support/tiny_configs.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/plan/check_plan.h"
#include "lethe/plan/make_plan.h"
#include "lethe/plan/saved_bytes.h"

namespace lethe {
namespace {

using test::expect_error;
using test::tiny_a;
using Id = SubgraphId;

constexpr LayerKind kCsaLayer{.ratio = kCsaRatio};

/// Operators that cut the layer as the reference does: every sub-graph of the table exists.
OperatorFacts reference_operators() {
  OperatorFacts facts;
  facts.rotates_in_sparse = false;
  facts.compressor_casts = true;
  facts.fp32_activations = false;
  facts.attention_bias = true;
  facts.indexer_loss = false;  // fused into sparse attention there
  return facts;
}

LayerChoice everything() {
  LayerChoice choice;
  choice.parts = {.csa = true, .q_norm = true, .mhc = true};
  choice.layer_norms = true;
  return choice;
}

std::string text_of(const Trigger& trigger) {
  if (trigger.kind == Trigger::Kind::Pull) return "pull";
  const bool explicitly = trigger.kind == Trigger::Kind::Explicit;
  return (explicitly ? "explicit " : "grad ") + std::string(node_name(trigger.at));
}

/// "q | q_up_norm 4 | last_read -> release | plain | overlap" for every released activation.
std::string release_table(const LayerPlan& plan) {
  const std::vector<SubgraphId> order = restore_order(plan);
  std::string out;
  for (const ActRule& rule : plan.acts) {
    if (rule.keep != Keep::Release) continue;
    size_t place = 0;
    while (std::find(plan.find(order[place])->outputs.begin(),
                     plan.find(order[place])->outputs.end(),
                     rule.id) == plan.find(order[place])->outputs.end())
      ++place;
    out += fmt::format("{} | {} {} | {} | {} | {}\n",
                       rule.name,
                       subgraph_name(order[place]),
                       place + 1,
                       node_name(rule.release),
                       text_of(rule.restore),
                       text_of(rule.restore_overlap));
  }
  return out;
}

// The instance of spec 3 4.6 for a main layer. Places count every region, the ordinary indexer and
// the cast among them. y_mlp and normed_mlp die at their last reader, earlier than there.
TEST(RecomputePlan, TheInstanceOfOneMainLayerIsTheTableOfTheSpecification) {
  const LayerPlan plan = make_layer_plan(kCsaLayer, reference_operators(), everything());
  EXPECT_EQ(plan.layer_class, "main/ratio4 csa+q_norm+norm+mhc");
  EXPECT_EQ(release_table(plan),
            "y_attn | attn_pre 1 | attn.norm | grad mlp.post | grad mlp.post\n"
            "post_attn | attn_pre 1 | attn.post | grad mlp.post | grad mlp.post\n"
            "comb_attn | attn_pre 1 | attn.post | grad mlp.post | grad mlp.post\n"
            "normed_attn | attn_norm 2 | attn.compress | grad attn.bda | grad mlp.post\n"
            "q | q_up_norm 3 | attn.sparse | grad mlp.post | grad mlp.post\n"
            "x32 | compress_cast 5 | attn.compress | grad attn.compress | grad attn.compress\n"
            "o | sparse 6 | attn.oup | grad mlp.post | grad mlp.post\n"
            "lse | sparse 6 | attn.sparse | grad mlp.post | grad mlp.post\n"
            "attn_out | oup 7 | attn.bda | grad mlp.post | grad mlp.post\n"
            "h_bda | attn_bda 8 | attn.post | grad mlp.post | grad mlp.post\n"
            "y_mid | attn_post 9 | mlp.post | grad mlp.post | grad mlp.post\n"
            "y_mlp | mlp_pre 10 | mlp.norm | grad mlp.post | grad mlp.post\n"
            "post_mlp | mlp_pre 10 | mlp.post | grad mlp.post | grad mlp.post\n"
            "comb_mlp | mlp_pre 10 | mlp.post | grad mlp.post | grad mlp.post\n"
            "normed_mlp | mlp_norm 11 | mlp.experts | grad mlp.combine | explicit mlp.experts\n");
  std::vector<std::string> kept;
  for (const ActRule& rule : plan.acts)
    if (rule.keep == Keep::Keep) kept.push_back(rule.name);
  EXPECT_EQ(kept,
            (std::vector<std::string>{"x_in",
                                      "q_compressed",
                                      "q_up",
                                      "kv",
                                      "topk_idx",
                                      "index_q",
                                      "index_k",
                                      "index_w",
                                      "kv_compress",
                                      "routing",
                                      "mlp_out",
                                      "out"}));
}

// Spec 3 3.3: G9(attn), G8, G2, G5, G6, G7, G10; G9(mlp).
TEST(RecomputePlan, RestoreOrderAndStagesAreThoseOfTheTwoStageRelease) {
  const LayerPlan plan = make_layer_plan(kCsaLayer, reference_operators(), everything());
  EXPECT_EQ(restore_order(plan),
            (std::vector<Id>{Id::AttnPre,
                             Id::AttnNorm,
                             Id::QUpNorm,
                             Id::Indexer,
                             Id::CompressCast,
                             Id::Sparse,
                             Id::Oup,
                             Id::AttnBda,
                             Id::AttnPost,
                             Id::MlpPre,
                             Id::MlpNorm}));
  EXPECT_EQ(stage_one_releases(plan),
            (std::vector<ActId>{{Id::QNorm, 0}, {Id::Sparse, 0}, {Id::Sparse, 1}}));
  EXPECT_EQ(final_releases(plan), (std::vector<ActId>{{Id::Oup, 0}, {Id::AttnBda, 0}}));
}

TEST(RecomputePlan, AnIdentityBdaIsNoRegionAndItsInputLivesUntilMhcPost) {
  const LayerPlan plan = make_layer_plan(kCsaLayer, OperatorFacts{}, everything());
  EXPECT_EQ(plan.find(Id::AttnBda), nullptr);
  EXPECT_EQ(plan.find(ActId{Id::AttnBda, 0}), nullptr);
  EXPECT_EQ(plan.find(ActId{Id::Oup, 0})->release, Event::AttnPostEnd);
}

TEST(RecomputePlan, TheIndexersLossReadsQAfterSparseAttention) {
  OperatorFacts facts;
  EXPECT_EQ(make_layer_plan(kCsaLayer, facts, everything()).find(ActId{Id::QNorm, 0})->release,
            Event::AttnOupEnd);
  EXPECT_EQ(make_layer_plan({.ratio = 128}, facts, everything()).find(ActId{Id::QNorm, 0})->release,
            Event::AttnSparseEnd);
}

// T1.2, with E1: no region without training or gradients.
TEST(RecomputePlan, PartsAreEnabledByTheTruthTable) {
  RecomputeConfig config;
  config.csa_attention = config.norm = config.mhc = true;
  for (const MtpSelection mtp : {MtpSelection::Include, MtpSelection::Skip}) {
    config.mtp = mtp;
    for (int bits = 0; bits < 8; ++bits) {
      const bool training = (bits & 1) != 0, grad = (bits & 2) != 0, is_mtp = (bits & 4) != 0;
      const EnabledParts parts =
          enabled_parts(config, is_mtp, true, {.training = training, .grad_enabled = grad});
      const bool on = training && grad && (!is_mtp || mtp == MtpSelection::Include);
      EXPECT_EQ(parts, (EnabledParts{.csa = on, .q_norm = on, .mhc = on})) << bits;
      EXPECT_EQ(parts.defer(), on);
    }
  }
}

TEST(RecomputePlan, EachFlagEnablesItsPartsAlone) {
  RecomputeConfig config;
  EXPECT_EQ(enabled_parts(config, false, true, {}), EnabledParts{});
  config.norm = true;
  EXPECT_EQ(enabled_parts(config, false, true, {}), EnabledParts{.q_norm = true});
  EXPECT_EQ(enabled_parts(config, false, false, {}), EnabledParts{});
  config = {};
  config.csa_attention = true;
  EXPECT_FALSE(enabled_parts(config, false, true, {}).defer());
}

std::vector<Id> regions(const LayerKind& kind, const EnabledParts& parts) {
  LayerChoice choice;
  choice.parts = parts;
  return restore_order(make_layer_plan(kind, OperatorFacts{}, choice));
}

// T1.3: G1, G2, G2', none.
TEST(RecomputePlan, TheQueryHasFourCases) {
  const LayerKind window{};
  EXPECT_EQ(regions(window, {.csa = true}), (std::vector<Id>{Id::QUp, Id::Sparse, Id::Oup}));
  EXPECT_EQ(regions(window, {.csa = true, .q_norm = true}),
            (std::vector<Id>{Id::QUpNorm, Id::Sparse, Id::Oup}));
  EXPECT_EQ(regions(window, {.q_norm = true}), (std::vector<Id>{Id::QNorm}));
  EXPECT_EQ(regions(window, {}), (std::vector<Id>{}));
}

TEST(RecomputePlan, OnlyRatioFourLayersHaveAnIndexer) {
  EXPECT_EQ(regions(kCsaLayer, {.csa = true}),
            (std::vector<Id>{Id::QUp, Id::Indexer, Id::Sparse, Id::Oup}));
  EXPECT_EQ(regions({.ratio = 128}, {.csa = true}),
            (std::vector<Id>{Id::QUp, Id::Sparse, Id::Oup}));
  EXPECT_EQ(regions({.mtp = true}, {.csa = true, .mhc = true}),
            (std::vector<Id>{Id::AttnPre, Id::QUp, Id::Sparse, Id::Oup, Id::AttnPost, Id::MlpPre}));
}

// T1.6 and spec 3 3.5: FP8, packed, fused, no-op cast, nothing compressed.
TEST(RecomputePlan, TheCompressorsCastIsLeftOutWithAReason) {
  const auto reason = [](OperatorFacts facts, int64_t ratio) -> std::string {
    const LayerFlow flow = layer_flow({.ratio = ratio}, facts);
    for (const Exclusion& one : flow.exclusions)
      if (one.subgraph == Id::CompressCast) return one.reason;
    return flow.find(Id::CompressCast) != nullptr ? "region" : "absent";
  };
  OperatorFacts facts = reference_operators();
  EXPECT_EQ(reason(facts, 4), "region");
  EXPECT_EQ(reason(facts, 128), "region");
  EXPECT_EQ(reason(facts, 0), "absent");
  facts.fp32_activations = true;
  EXPECT_EQ(reason(facts, 4), "the cast of an fp32 activation returns its input");
  facts.compressor_casts = false;
  EXPECT_EQ(reason(facts, 4), "the fused compressor casts nothing");
  facts.varlen_compressor = true;
  EXPECT_EQ(reason(facts, 4), "the compressor reads packed documents");
  facts.fp8_compressor = true;
  EXPECT_EQ(reason(facts, 4), "the compressor computes in FP8");
}

TEST(RecomputePlan, KeptOutputsShortenTheChain) {
  LayerChoice choice = everything();
  choice.attn_keep = AttnKeep::AttnOut;
  const LayerPlan out_kept = make_layer_plan(kCsaLayer, OperatorFacts{}, choice);
  EXPECT_EQ(out_kept.find(ActId{Id::Oup, 0})->keep, Keep::Keep);
  EXPECT_NE(out_kept.find(Id::Oup), nullptr);
  EXPECT_EQ(out_kept.find(ActId{Id::Sparse, 0})->restore.at, Event::AttnOupEnd);
  EXPECT_EQ(out_kept.find(ActId{Id::AttnPost, 0})->keep, Keep::Release);
  choice.attn_keep = AttnKeep::Stream;
  const LayerPlan y_kept = make_layer_plan(kCsaLayer, OperatorFacts{}, choice);
  EXPECT_EQ(y_kept.find(ActId{Id::AttnPost, 0})->keep, Keep::Keep);
  EXPECT_EQ(y_kept.find(ActId{Id::Oup, 0})->keep, Keep::Release);
  for (const Id id : {Id::AttnPre, Id::QNorm, Id::Sparse, Id::Oup})
    EXPECT_EQ(y_kept.find(ActId{id, 0})->restore.at, Event::AttnPostEnd);
}

// Spec 3 3.4.
TEST(RecomputePlan, TheReferenceClonesOnlyWithOverlapAndMhcAlone) {
  const auto clones = [](const EnabledParts& parts, bool overlap) {
    LayerChoice choice;
    choice.parts = parts;
    return reference_clones_attention(make_layer_plan(kCsaLayer, OperatorFacts{}, choice), overlap);
  };
  EXPECT_TRUE(clones({.mhc = true}, true));
  EXPECT_FALSE(clones({.mhc = true}, false));
  EXPECT_FALSE(clones({.csa = true, .mhc = true}, true));
  EXPECT_FALSE(clones({.csa = true}, true));
}

/// Classes of the layers of tiny-A: window/hash, ratio 4/hash, ratio 8, ratio 4, MTP.
std::vector<std::string> classes(const RecomputeConfig& config) {
  const PlanSubject subject = PlanSubject::of(tiny_a());
  const RecomputePlan plan = make_recompute_plan(subject, config);
  check_plan(subject, plan);
  std::vector<std::string> out;
  for (size_t i = 0; i < plan.layer_to_class.size(); ++i) out.push_back(plan.layer(i).layer_class);
  return out;
}

TEST(RecomputePlan, NothingAskedForIsAnEmptyPlan) {
  const RecomputePlan plan = make_recompute_plan(PlanSubject::of(tiny_a()), {});
  EXPECT_TRUE(plan.is_empty());
  EXPECT_EQ(classes({}),
            (std::vector<std::string>{"main/window/hash plain",
                                      "main/ratio4/hash plain",
                                      "main/ratio8 plain",
                                      "main/ratio4 plain",
                                      "mtp/window plain"}));
}

// T2.8 as far as data goes.
TEST(RecomputePlan, MtpBlocksTakePartUnlessSkipped) {
  RecomputeConfig config;
  config.csa_attention = true;
  EXPECT_EQ(classes(config).back(), "mtp/window csa");
  config.mtp = MtpSelection::Skip;
  EXPECT_EQ(classes(config).back(), "mtp/window plain");
  EXPECT_EQ(classes(config)[3], "main/ratio4 csa");
}

TEST(RecomputePlan, BlockTakesTheFirstLayersAndLeavesTheRestToParts) {
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Full;
  config.method = RecomputeMethod::Block;
  config.num_layers = 2;
  config.norm = true;
  config.norm_num_layers = 1;
  EXPECT_EQ(classes(config),
            (std::vector<std::string>{"main/window/hash full",
                                      "main/ratio4/hash full",
                                      "main/ratio8 q_norm+norm",
                                      "main/ratio4 plain",
                                      "mtp/window plain"}));
  config.num_layers = 5;
  config.norm = false;
  config.norm_num_layers.reset();
  EXPECT_EQ(classes(config).back(), "mtp/window full");
}

TEST(RecomputePlan, PartsAreCountedBehindTheLayersOfARatio) {
  RecomputeConfig config;
  config.ratio = 0.4;
  config.norm = true;
  config.norm_num_layers = 1;
  EXPECT_EQ(classes(config),
            (std::vector<std::string>{"main/window/hash full",
                                      "main/ratio4/hash full",
                                      "main/ratio8 q_norm+norm",
                                      "main/ratio4 plain",
                                      "mtp/window plain"}));
}

// RC9: a part that whole layers leave no layer to.
TEST(RecomputePlan, APartThatIsLeftNoLayerIsRefused) {
  RecomputeConfig config;
  config.ratio = 1;
  config.mtp = MtpSelection::Skip;
  const auto make = [&config] { (void)make_recompute_plan(PlanSubject::of(tiny_a()), config); };
  EXPECT_NO_THROW(make());  // nothing but whole layers is asked for
  config.csa_attention = true;
  expect_error<ConfigError>(make,
                            {"--recompute-csa-attention [RC9]: must have a layer",
                             "got none of 5 under --recompute-ratio 1, --recompute-mtp skip; ",
                             "leave it out, or recompute fewer layers whole, or give "
                             "--recompute-mtp include"});
  config.mhc = config.norm = true;
  expect_error<ConfigError>(
      make, {"--recompute-csa-attention, --mhc-recompute, --recompute-norm [RC9]: must "});
  config.mtp = MtpSelection::Include;  // the last block of the model is never one of a ratio
  EXPECT_NO_THROW(make());
  config = {};
  config.granularity = RecomputeGranularity::Full;
  config.method = RecomputeMethod::Uniform;
  config.num_layers = 1;
  config.mhc = true;
  expect_error<ConfigError>(make, {"--mhc-recompute [RC9]", "--recompute-granularity full of 5"});
  config.norm = true;
  expect_error<ConfigError>(make, {"--mhc-recompute, --recompute-norm [RC9]"});
  config.norm = config.mhc = false;
  config.method = RecomputeMethod::Block;
  config.num_layers = 5;
  config.csa_attention = true;
  expect_error<ConfigError>(
      make, {"--recompute-csa-attention [RC9]", "--recompute-granularity full of 5"});
  config.num_layers = 4;
  EXPECT_NO_THROW(make());  // the MTP block is left
  config.mtp = MtpSelection::Skip;
  expect_error<ConfigError>(make, {"--recompute-granularity full of 4", "--recompute-mtp skip"});
}

TEST(RecomputePlan, EveryModuleNeedsALayer) {
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Selective;
  config.ratio = 1;
  config.mtp = MtpSelection::Skip;
  const auto make = [&config] { (void)make_recompute_plan(PlanSubject::of(tiny_a()), config); };
  for (const char* module :
       {"core_attn", "layernorm", "mla_up_proj", "moe", "shared_experts", "mhc"}) {
    config.modules = {module};
    const std::string where = fmt::format("--recompute-modules {} [RC9]", module);
    expect_error<ConfigError>(make, {where.c_str()});
  }
}

TEST(RecomputePlan, WhatNobodyAskedForNeedsNoLayer) {
  RecomputeConfig config;
  config.ratio = 1;
  config.mtp = MtpSelection::Skip;
  config.norm = true;
  config.norm_num_layers = 0;
  EXPECT_NO_THROW((void)make_recompute_plan(PlanSubject::of(tiny_a()), config));
  // Another stage has the part.
  PlanSubject staged = PlanSubject::of(tiny_a());
  staged.pipeline.pipeline_ranks = 2;
  staged.holds_mtp = false;
  config.norm_num_layers.reset();
  EXPECT_NO_THROW((void)make_recompute_plan(staged, config));
}

TEST(RecomputePlan, UniformKeepsTheInputOfEveryChunk) {
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Full;
  config.method = RecomputeMethod::Uniform;
  config.num_layers = 3;
  EXPECT_EQ(classes(config),
            (std::vector<std::string>{"main/window/hash full open",
                                      "main/ratio4/hash full goes_on open",
                                      "main/ratio8 full goes_on",
                                      "main/ratio4 full",
                                      "mtp/window full"}));
}

TEST(RecomputePlan, InnerLayersOfAnMhcBlockReleaseTheirOutputAndKeepTheAttentions) {
  RecomputeConfig config;
  config.mhc = config.csa_attention = true;
  config.mhc_layer_num = 3;
  EXPECT_EQ(classes(config),
            (std::vector<std::string>{"main/window/hash csa+mhc inner",
                                      "main/ratio4/hash csa+mhc inner",
                                      "main/ratio8 csa+mhc",
                                      "main/ratio4 csa+mhc",
                                      "mtp/window csa+mhc"}));
  const RecomputePlan plan = make_recompute_plan(PlanSubject::of(tiny_a()), config);
  EXPECT_EQ(plan.layer(0).find(ActId{Id::MlpPost, 0})->keep, Keep::Release);
  EXPECT_EQ(plan.layer(0).find(ActId{Id::Oup, 0})->keep, Keep::Keep);
  EXPECT_EQ(plan.layer(2).find(ActId{Id::MlpPost, 0})->keep, Keep::Keep);
  EXPECT_EQ(plan.layer(2).find(ActId{Id::Oup, 0})->keep, Keep::Release);
}

// R6.5: without a pipeline leading layers, MTP behind the main ones, the last never.
TEST(RecomputePlan, ARatioTakesLeadingLayers) {
  ModelConfig model = tiny_a();
  model.num_layers = 7;
  model.num_mtp = 3;
  model.ratios = std::vector<int64_t>(10, 0);
  const PlanSubject subject = PlanSubject::of(model);
  const auto full = [&subject](double ratio) {
    RecomputeConfig config;
    config.ratio = ratio;
    const RecomputePlan plan = make_recompute_plan(subject, config);
    std::string out;
    for (size_t i = 0; i < 10; ++i) out += plan.layer(i).regions.empty() ? '.' : 'F';
    return out;
  };
  EXPECT_EQ(full(0.8), "FFFFFFFF..");
  EXPECT_EQ(full(1), "FFFFFFFFF.");
  EXPECT_EQ(full(0), "..........");
}

TEST(RecomputePlan, ARatioTakesItsShareOfEveryRankByPriority) {
  ModelConfig model = tiny_a();
  model.num_layers = 8;
  model.num_mtp = 0;
  model.ratios = std::vector<int64_t>(8, 0);
  PlanSubject subject = PlanSubject::of(model);
  subject.pipeline.pipeline_ranks = 2;
  subject.pipeline.virtual_stages = 2;
  RecomputeConfig config;
  config.ratio = 0.5;
  const RecomputePlan plan = make_recompute_plan(subject, config);
  std::string out;  // layers 1, 2, 5, 6
  for (size_t i = 0; i < 4; ++i) out += plan.layer(i).regions.empty() ? '.' : 'F';
  EXPECT_EQ(out, "F.F.");
}

TEST(RecomputePlan, AnMhcBlockEndsWithItsVirtualStage) {
  ModelConfig model = tiny_a();
  model.num_mtp = 0;
  model.ratios = {0, 0, 0, 0};
  model.num_hash_layers = 0;
  PlanSubject subject = PlanSubject::of(model);
  subject.pipeline.virtual_stages = 2;
  RecomputeConfig config;
  config.mhc = true;
  config.mhc_layer_num = 4;
  const RecomputePlan plan = make_recompute_plan(subject, config);
  std::string out;
  for (size_t i = 0; i < 4; ++i) out += plan.layer(i).find(Id::MlpPost) != nullptr ? 'i' : 'e';
  EXPECT_EQ(out, "ieie");
  EXPECT_NO_THROW(check_plan(subject, plan));
}

TEST(RecomputePlan, ModulesNameTheirParts) {
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Selective;
  const auto of = [&config](std::vector<std::string> modules) {
    config.modules = std::move(modules);
    return classes(config)[3];
  };
  EXPECT_EQ(of({"core_attn"}), "main/ratio4 core_attn");
  EXPECT_EQ(of({"mla_up_proj", "moe"}), "main/ratio4 mla_up_proj+moe");
  EXPECT_EQ(of({"layernorm", "shared_experts"}), "main/ratio4 q_norm+norm+shared_experts");
  EXPECT_EQ(of({"mhc"}), "main/ratio4 mhc");
}

// A part that matches nothing is an error.
TEST(RecomputePlan, ModulesWithoutCounterpartAreRefused) {
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Selective;
  const auto make = [&config] { (void)make_recompute_plan(PlanSubject::of(tiny_a()), config); };
  config.modules = {"mlp"};
  expect_error<ConfigError>(make, {"--recompute-modules", "[R6.9]", "got mlp", "name moe"});
  config.modules = {"moe_act"};
  expect_error<ConfigError>(make, {"--recompute-modules", "got moe_act", "never saves the result"});
  config = {};
  config.vision_ratio = 0.5;
  expect_error<ConfigError>(make, {"--vision-recompute-ratio", "got 0.5", "no vision tower"});
}

// Bytes per token of spec 3 3.2 for Flash in bfloat16.
TEST(SavedBytes, FlashHasTheBytesOfTheSpecification) {
  ModelConfig flash;
  flash.hidden = 4096;
  flash.heads = 64;
  const ActivationSizes sizes{.tokens = 1, .activation_bytes = 2};
  const auto bytes = [&](Id id, uint8_t out = 0) { return act_bytes(flash, sizes, {id, out}); };
  EXPECT_EQ(bytes(Id::QUp), 65536);
  EXPECT_EQ(bytes(Id::QNorm), 65536);
  EXPECT_EQ(bytes(Id::CompressCast), 16384);
  EXPECT_EQ(bytes(Id::Sparse), 65536);
  EXPECT_EQ(bytes(Id::Oup), 8192);
  EXPECT_EQ(bytes(Id::AttnBda), 8192);
  EXPECT_EQ(bytes(Id::AttnNorm), 8192);
  EXPECT_EQ(bytes(Id::AttnPre), 8192);
  EXPECT_EQ(bytes(Id::AttnPre, 1) + bytes(Id::AttnPre, 2), 80);
  EXPECT_EQ(bytes(Id::AttnPost), 32768);
  EXPECT_EQ(bytes(Id::MlpPost), 32768);
  EXPECT_EQ(inside_bytes(flash, sizes, OperatorFacts{}, kCsaLayer, Id::Oup), 16384);
  EXPECT_EQ(inside_bytes(flash, sizes, reference_operators(), kCsaLayer, Id::Oup), 16384 + 65536);
  EXPECT_EQ(inside_bytes(flash, sizes, OperatorFacts{}, kCsaLayer, Id::QUpNorm), 65536);
}

// A region that frees nothing is reported with who keeps its output.
TEST(SavedBytes, RetainedOutputsNameTheirReaders) {
  LayerChoice choice;
  choice.core_attention = true;
  const LayerPlan layer = make_layer_plan(kCsaLayer, OperatorFacts{}, choice);
  const ModelConfig model = tiny_a();
  const ActivationSizes sizes{.tokens = 16, .slots = 4, .chosen_slots = 4};
  const std::vector<RegionBytes> rows = region_bytes(model, sizes, OperatorFacts{}, layer);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].freed(), 0);
  EXPECT_EQ(rows[0].retained, 16 * 4 * 32 * 4 + 16 * 4 * 4 + 16 * 4 * 4);
  EXPECT_EQ(rows[0].holders, (std::vector<std::string>{"attn.sparse", "attn.oup"}));
  EXPECT_EQ(output_holders(OperatorFacts{}, layer, Id::Sparse), rows[0].holders);
  EXPECT_TRUE(output_holders(OperatorFacts{}, layer, Id::Moe).empty());  // no such region
}

TEST(SavedBytes, ANormThatSavesItsOutputLeavesNothingForTheUpProjection) {
  OperatorFacts facts;
  facts.q_norm_saves_output = true;
  LayerChoice choice;
  choice.parts.csa = true;
  const LayerPlan layer = make_layer_plan({}, facts, choice);
  const std::vector<RegionBytes> rows = region_bytes(tiny_a(), {.tokens = 16}, facts, layer);
  EXPECT_EQ(rows[0].subgraph, Id::QUp);
  EXPECT_EQ(rows[0].freed(), 0);
  EXPECT_TRUE(rows[0].holders.empty());
}

}  // namespace
}  // namespace lethe
