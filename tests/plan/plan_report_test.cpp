#include "lethe/plan/plan_report.h"

#include "support/tiny_configs.h"
#include <gtest/gtest.h>

namespace lethe {
namespace {

using test::tiny_a;

const ActivationSizes kSizes{.tokens = 16, .slots = 4, .chosen_slots = 4};

TEST(PlanReport, AnEmptyPlanSaysSo) {
  const PlanSubject subject = PlanSubject::of(tiny_a());
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, {}), kSizes),
            "nothing is recomputed\n");
}

// R6.5: the chosen layers are printed.
TEST(PlanReport, LayersOfARatioAreListed) {
  ModelConfig model = tiny_a();
  model.num_hash_layers = 0;
  model.ratios = {0, 0, 0, 0, 0};
  const PlanSubject subject = PlanSubject::of(model);
  RecomputeConfig config;
  config.ratio = 0.6;
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), kSizes),
            "L0-L2  main/window full\n"
            "L3  main/window plain\n"
            "MTP0  mtp/window plain\n");
}

TEST(PlanReport, RegionsShowWhatTheyFreeAndWhoKeepsTheRest) {
  ModelConfig model = tiny_a();
  model.num_mtp = 0;
  model.num_layers = 2;
  model.num_hash_layers = 0;
  model.ratios = {4, 4};
  const PlanSubject subject = PlanSubject::of(model);
  RecomputeConfig config;
  config.csa_attention = true;
  config.csa_keep_output = true;
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), kSizes),
            "L0-L1  main/ratio4 csa keep=attn_out\n"
            "    q_up             G1   frees       8192 B  keeps          0 B\n"
            "    indexer          G3   frees       4096 B  keeps       4864 B\n"
            "    sparse           G5   frees       8704 B  keeps          0 B\n"
            "    oup              G6   frees       2048 B  keeps       4096 B\n"
            "note: recompute plan [SC11] main/ratio4 csa keep=attn_out: 'compress_cast' is no "
            "region: the fused compressor casts nothing\n"
            "note: recompute plan [SC11] main/ratio4 csa keep=attn_out: 'attn_bda' is no region: "
            "without bias and dropout it returns its input\n");
  config = {};
  config.granularity = RecomputeGranularity::Selective;
  config.modules = {"shared_experts"};
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), kSizes),
            "L0-L1  main/ratio4 shared_experts\n"
            "    shared_expert         frees          0 B  keeps          0 B  (frees nothing: "
            "nobody saves its output)\n");
}

TEST(PlanReport, UnitsShowWhatTheyAreMadeOf) {
  const SaveTargetMap map{.model_type = "toy",
                          .targets = {{.unit = SaveUnit::Attn, .names = {"a::v2", "a::v3"}},
                                      {.unit = SaveUnit::MoeGate,
                                       .kind = TargetKind::KeptCallables,
                                       .names = {"gate.project"}}}};
  const SaveNames names{.has_op = [](std::string_view name) { return name == "a::v3"; },
                        .has_callable = [](std::string_view) { return true; }};
  EXPECT_EQ(units_report(map, names),
            "attn         operator  a::v2 (not here), a::v3\n"
            "moe_gate     callable  gate.project\n");
  EXPECT_EQ(units_report({.model_type = "wrapper", .targets = {}}, names),
            "wrapper declares no save units\n");
}

}  // namespace
}  // namespace lethe
