#include "lethe/plan/plan_report.h"

#include "support/tiny_configs.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lethe {
namespace {

using test::tiny_a;

// 4 slots of a ratio-4 layer, all of them chosen.
MicroBatchShape one_document() {
  return {.documents = Documents::from_lengths(std::vector<int64_t>{16})};
}

TEST(PlanReport, AnEmptyPlanSaysSo) {
  const PlanSubject subject = PlanSubject::of(tiny_a());
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, {}), one_document()),
            "nothing is recomputed or swapped\n");
}

// R6.5: the chosen layers are printed.
TEST(PlanReport, LayersOfARatioAreListed) {
  ModelConfig model = tiny_a();
  model.num_hash_layers = 0;
  model.ratios = {0, 0, 0, 0, 0};
  const PlanSubject subject = PlanSubject::of(model);
  RecomputeConfig config;
  config.ratio = 0.6;
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), one_document()),
            "L0-L2  main/window full\n"
            "    layer                 frees      94744 B  keeps      16384 B\n"
            "L3  main/window plain\n"
            "MTP0  mtp/window plain\n");
}

PlanSubject one_window_layer() {
  ModelConfig model = tiny_a();
  model.num_hash_layers = 0;
  model.num_mtp = 0;
  model.num_layers = 1;
  model.ratios = {0};
  return PlanSubject::of(model);
}

// R6.35: what each unit keeps, and how much less the layer frees.
TEST(PlanReport, UnitsOfWholeLayersShowWhatTheyKeep) {
  const PlanSubject subject = one_window_layer();
  RecomputeConfig config;
  config.granularity = RecomputeGranularity::Full;
  config.method = RecomputeMethod::Uniform;
  config.num_layers = 1;
  const RecomputePlan plan =
      make_recompute_plan(subject, config, {"attn", "experts", "compressor"});
  EXPECT_EQ(plan_report(subject, plan, one_document()),
            "L0  main/window full save=attn,experts,compressor\n"
            "    layer                 frees      74008 B  keeps      16384 B\n"
            "    attn             unit                     keeps       8448 B  "
            "lethe::sparse_attention\n"
            "    experts          unit                     keeps      20480 B  lethe::experts, "
            "lethe::swiglu_mlp\n");
}

TEST(PlanReport, RegionsInsideOfAWholeLayerLeaveTheirOutputsToIt) {
  const PlanSubject subject = one_window_layer();
  const LayerChoice nested{.full = true, .parts = {.mhc = true}, .nested = true};
  const RecomputePlan plan{.classes = {make_layer_plan({}, subject.operators, nested)},
                           .layer_to_class = {0}};
  EXPECT_EQ(plan_report(subject, plan, one_document()),
            "L0  main/window full+mhc nested\n"
            "    attn_pre         G9   frees       1612 B  keeps          0 B\n"
            "    attn_post        G10  frees          0 B  keeps          0 B  (frees nothing: its "
            "output counts for the layer)\n"
            "    mlp_pre          G9   frees       1612 B  keeps          0 B\n"
            "    layer                 frees      91520 B  keeps      16384 B\n");
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
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), one_document()),
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
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, config), one_document()),
            "L0-L1  main/ratio4 shared_experts\n"
            "    shared_expert         frees       4096 B  keeps          0 B\n");
  const PlanSubject other = PlanSubject::of(model, {.q_norm_saves_output = true});
  config = {};
  config.csa_attention = true;
  const std::string report = plan_report(other, make_recompute_plan(other, config), one_document());
  EXPECT_NE(report.find("    q_up             G1   frees          0 B  keeps          0 B  "
                        "(frees nothing: nobody saves its output)\n"),
            std::string::npos)
      << report;
}

TEST(PlanReport, UnitsShowWhatTheyAreMadeOfAndWhichLayersHaveThem) {
  const SaveTargetMap map{
      .model_type = "toy",
      .targets = {
          {.unit = SaveUnit::Attn, .names = {"a::v2", "a::v3"}},
          {.unit = SaveUnit::MoeGate, .kind = TargetKind::KeptCallables, .names = {"gate.project"}},
          {.unit = SaveUnit::Compressor, .names = {"a::pool"}, .needs_slots = true}}};
  const SaveNames names{.has_op = [](std::string_view name) { return name == "a::v3"; },
                        .has_callable = [](std::string_view) { return true; }};
  const PlanSubject subject = PlanSubject::of(tiny_a());
  EXPECT_EQ(units_report(subject, map, names),
            "attn         operator  a::v3, a::v2 (not here)  L0-L3, MTP0\n"
            "moe_gate     callable  gate.project             L0-L3, MTP0\n"
            "compressor   operator  a::pool (not here)       L1-L3\n");
  const nlohmann::json json = nlohmann::json::parse(units_json(subject, map, names));
  EXPECT_EQ(json["model_type"], "toy");
  ASSERT_EQ(json["units"].size(), 3u);
  EXPECT_EQ(json["units"][0]["names"], nlohmann::json::array({"a::v3"}));
  EXPECT_EQ(json["units"][0]["missing"], nlohmann::json::array({"a::v2"}));
  EXPECT_EQ(json["units"][2]["layers"], "L1-L3");

  ModelConfig window = tiny_a();
  window.ratios = {0, 0, 0, 0, 0};
  EXPECT_NE(
      units_report(PlanSubject::of(window), map, names).find("a::pool (not here)       no layer\n"),
      std::string::npos);
  const SaveTargetMap none{.model_type = "wrapper", .targets = {}};
  EXPECT_EQ(units_report(subject, none, names), "wrapper declares no save units\n");
  EXPECT_EQ(nlohmann::json::parse(units_json(subject, none, names))["units"].size(), 0u);
}

// The first layer reads the embedding, whose streams are one memory.
TEST(PlanReport, SwappedInputsAreLines) {
  ModelConfig model = tiny_a();
  model.num_hash_layers = 0;
  model.num_mtp = 0;
  model.ratios = {0, 0, 0, 0};
  const PlanSubject subject = PlanSubject::of(model);
  EXPECT_EQ(plan_report(subject, make_recompute_plan(subject, {}, {}, true), one_document()),
            fmt::format("L0-L2  main/window swap\n"
                        "    layer_input           swaps {:>10} B  (L0: {} B)\n"
                        "L3  main/window plain\n",
                        16 * model.streams * model.hidden * 4,
                        16 * model.hidden * 4));
}

// What the start of a run prints and its record stores.
TEST(PlanReport, ClassesAreSummedUpByTheirLayers) {
  const PlanSubject subject = PlanSubject::of(tiny_a());
  RecomputeConfig config;
  config.csa_attention = true;
  config.mtp = MtpSelection::Skip;
  const RecomputePlan plan = make_recompute_plan(subject, config);
  std::vector<std::string> layers, names;
  for (const ClassSummary& row : plan_summary(subject, plan, one_document())) {
    layers.push_back(row.layers);
    names.push_back(row.name);
    EXPECT_EQ(row.freed_bytes > 0, row.layers != "MTP0") << row.name;
  }
  EXPECT_EQ(layers, (std::vector<std::string>{"L0", "L1", "L2", "L3", "MTP0"}));
  EXPECT_EQ(names[3], "main/ratio4 csa");
  EXPECT_EQ(names[4], "mtp/window plain");
}

}  // namespace
}  // namespace lethe
