#include "lethe/train/recompute_choice.h"

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "support/tiny_configs.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/plan/plan_file.h"

namespace lethe {
namespace {

using test::expect_error;
using test::TempFolder;

RunConfig run_config() {
  RunConfig config;
  config.model = test::tiny_a();
  config.train.seq_length = 32;
  config.train.micro_batch_size = 2;
  config.train.indexer_loss_coeff = 0.01;
  return config;
}

RunConfig csa_and_mhc() {
  RunConfig config = run_config();
  config.recompute.csa_attention = config.recompute.mhc = true;
  return config;
}

RunConfig half_of_the_layers(std::vector<SaveUnit> units) {
  RunConfig config = run_config();
  config.recompute.ratio = 0.5;
  config.recompute.save = {.kind = SaveSelection::Kind::Listed, .units = std::move(units)};
  return config;
}

RunConfig of_file(const std::filesystem::path& file) {
  RunConfig config = run_config();
  config.recompute.plan_file = file.string();
  return config;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RecomputeChoice, WithoutASettingNothingIsRecomputed) {
  const RunConfig config = run_config();
  const RecomputeChoice choice = choose_recompute(config);
  EXPECT_TRUE(choice.plan.is_empty());
  EXPECT_FALSE(recompute_facts(config, choice));
  EXPECT_EQ(plan_lines(config, choice), "");
  EXPECT_NE(plan_page(config, choice).find("nothing is recomputed or swapped\n"),
            std::string::npos);
}

// The node of the indexer's loss reads q behind the attention: where it does not run, q goes
// earlier.
TEST(RecomputeChoice, ThePlanKnowsWhetherTheIndexersLossRuns) {
  const auto last_read_of_q = [](const RunConfig& config) {
    const RecomputePlan plan = choose_recompute(config).plan;
    for (const ActRule& rule : plan.layer(3).acts)  // ratio 4
      if (rule.name == "q") return rule.last_read;
    return Event::Never;
  };
  RunConfig config = csa_and_mhc();
  EXPECT_EQ(last_read_of_q(config), Event::AttnOupEnd);
  config.train.indexer_loss_coeff = 0;
  EXPECT_EQ(last_read_of_q(config), Event::AttnSparseEnd);
  config.train.indexer_loss_coeff = 0.01;
  config.train.indexer_loss = IndexerLoss::Off;
  EXPECT_EQ(last_read_of_q(config), Event::AttnSparseEnd);
}

TEST(RecomputeChoice, SizesAreThoseOfAMicroBatch) {
  RunConfig config = run_config();
  const MicroBatchShape shape = micro_batch_shape(config);
  ActivationSizes sizes = sizes_of(config.model, shape, {.ratio = 4});
  EXPECT_EQ(sizes.tokens, 64);
  EXPECT_EQ(sizes.slots, 16);
  EXPECT_EQ(sizes.chosen_slots, 4);  // index_topk
  EXPECT_EQ(sizes.activation_bytes, 4);
  sizes = sizes_of(config.model, shape, {.ratio = 0});
  EXPECT_EQ(sizes.slots, 0);
  EXPECT_EQ(sizes.chosen_slots, 0);
}

TEST(RecomputeChoice, APlanThatWasSavedIsReadBackAsItWas) {
  const TempFolder folder;
  RunConfig config = csa_and_mhc();
  config.recompute.save_plan_file = (folder / "plan.json").string();
  const RecomputeChoice made = choose_recompute(config);
  save_chosen_plan(config, made);
  EXPECT_EQ(folder.num_files(), 1u);  // no temporary file

  RunConfig other = of_file(folder / "plan.json");
  const RecomputeChoice read = choose_recompute(other);
  EXPECT_EQ(read.plan, made.plan);
  EXPECT_EQ(recompute_facts(other, read)->plan, recompute_facts(config, made)->plan);
  // Checks are added to those of the file, never taken away.
  other.recompute.checks = PlanChecks::Checked;
  EXPECT_EQ(choose_recompute(other).plan.checks, PlanChecks::Checked);
  RecomputePlan bitwise = made.plan;
  bitwise.checks = PlanChecks::Bitwise;
  save_plan(folder / "plan.json", made.subject, bitwise);
  EXPECT_EQ(choose_recompute(other).plan.checks, PlanChecks::Bitwise);
}

TEST(RecomputeChoice, APlanOfAnotherModelIsRefusedByWhatDiffers) {
  const TempFolder folder;
  RunConfig config = csa_and_mhc();
  config.recompute.save_plan_file = (folder / "plan.json").string();
  save_chosen_plan(config, choose_recompute(config));
  RunConfig other = of_file(folder / "plan.json");
  other.model.hidden = 128;
  expect_error<RecomputeError>(
      [&] { (void)choose_recompute(other); },
      {"plan.json [plan-model]", "hidden_size = 64 and not 128", "--save-recompute-plan"});
  expect_error<DataError>([&] { (void)choose_recompute(of_file(folder / "absent.json")); },
                          {"absent.json"});
}

// Its gradients would differ in the last bits.
TEST(RecomputeChoice, AReentrantPlanDoesNotTrain) {
  const TempFolder folder;
  RecomputeChoice choice = choose_recompute(csa_and_mhc());
  choice.plan.mode = RecomputeMode::Reentrant;
  save_plan(folder / "plan.json", choice.subject, choice.plan);
  expect_error<RecomputeError>([&] { (void)choose_recompute(of_file(folder / "plan.json")); },
                               {"plan.json [plan-mode]", "engine", "got reentrant"});
}

TEST(RecomputeChoice, APlanThatWouldQuietlyDoLessIsRefused) {
  const TempFolder folder;
  RecomputeChoice choice = choose_recompute(half_of_the_layers({SaveUnit::Attn}));
  for (LayerPlan& layer : choice.plan.classes)
    layer = layer.save_units.empty()
                ? layer
                : make_layer_plan(layer.kind,
                                  choice.subject.operators,
                                  {.full = true, .nested = true, .save_units = {"attn"}});
  save_plan(folder / "nested.json", choice.subject, choice.plan);
  expect_error<RecomputeError>([&] { (void)choose_recompute(of_file(folder / "nested.json")); },
                               {"nested.json [R6.17]", "leave out one"});
}

// The outputs of a region come and go together.
TEST(RecomputeChoice, APlanThatKeepsHalfOfARegionsOutputsIsRefused) {
  const TempFolder folder;
  RecomputeChoice choice = choose_recompute(csa_and_mhc());
  for (LayerPlan& layer : choice.plan.classes)
    for (ActRule& act : layer.acts)
      if (act.name == "o") act = {.name = act.name, .id = act.id, .last_read = act.last_read};
  save_plan(folder / "half.json", choice.subject, choice.plan);
  expect_error<RecomputeError>([&] { (void)choose_recompute(of_file(folder / "half.json")); },
                               {"half.json [plan-outputs]", "'sparse'", "kept together"});
}

// The loss over another set than the attended one makes its own sums.
TEST(RecomputeChoice, OnlyTheLossOverTheAttendedSetReadsTheMassOfAttention) {
  TrainConfig train;
  train.indexer_loss_coeff = 0.01;
  EXPECT_TRUE(operator_facts(train).loss_reads_mass);
  TrainConfig other = train;
  other.csa_attention = CsaAttention::Dense;
  EXPECT_FALSE(operator_facts(other).loss_reads_mass);
  other = train;
  other.indexer_loss = IndexerLoss::Dense;
  EXPECT_FALSE(operator_facts(other).loss_reads_mass);
  other = train;
  other.indexer_teacher = IndexerTeacher::Conditional;
  EXPECT_FALSE(operator_facts(other).loss_reads_mass);
}

TEST(RecomputeChoice, APlanFileSaysWhatIsSwapped) {
  const TempFolder folder;
  RunConfig config = csa_and_mhc();
  config.swap.layer_input = true;
  const RecomputeChoice choice = choose_recompute(config);
  EXPECT_TRUE(choice.plan.swaps());
  save_plan(folder / "plan.json", choice.subject, choice.plan);
  EXPECT_EQ(choose_recompute(of_file(folder / "plan.json")).plan, choice.plan);
  EXPECT_NE(plan_page(config, choice).find("layer_input"), std::string::npos);
}

TEST(RecomputeChoice, TheBalanceLossCountsInThePrediction) {
  RunConfig config = csa_and_mhc();
  const auto counted = [&config](bool hash) {
    return sizes_of(config.model, micro_batch_shape(config), {.hash = hash}).balanced_documents;
  };
  config.train.balance_loss_coeff = 0.1;
  EXPECT_EQ(counted(false), config.train.micro_batch_size);
  EXPECT_EQ(counted(true), 0);
  config.train.balance_hash_layers = true;
  EXPECT_EQ(counted(true), config.train.micro_batch_size);
  config.train.balance_loss_coeff = 0;
  EXPECT_EQ(counted(false), 0);
}

// R6.3, R6.9, R6.10.
TEST(RecomputeChoice, SaveUnitsAreResolvedAndPinned) {
  const RunConfig config = half_of_the_layers({SaveUnit::Experts, SaveUnit::Attn});
  const RecomputeChoice choice = choose_recompute(config);
  const std::vector<std::string> names = {"experts", "attn"};
  EXPECT_EQ(choice.units.names(), names);
  EXPECT_EQ(choice.plan.layer(0).save_units, names);
  EXPECT_EQ(recompute_facts(config, choice)->save_units, names);
  expect_error<ConfigError>(
      [] { (void)choose_recompute(half_of_the_layers({SaveUnit::MoeDispatch})); },
      {"--save-units moe_dispatch [R6.10]", "deepseek_v4", "attn, moe_gate"});

  const TempFolder folder;
  save_plan(folder / "plan.json", choice.subject, choice.plan);
  EXPECT_EQ(choose_recompute(of_file(folder / "plan.json")).units.names(), names);
  const std::string text = read_text_file(folder / "plan.json");
  write_file_atomically(folder / "plan.json", replaced(text, "\"experts\"", "\"expert\""));
  expect_error<ConfigError>([&] { (void)choose_recompute(of_file(folder / "plan.json")); },
                            {"plan.json [save-unit]", "'expert'", "did you mean 'experts'"});
}

using Lines = std::vector<std::string>;

TEST(RecomputeChoice, ARatioOfLessThanOneLayerIsSaid) {
  RunConfig config = half_of_the_layers({SaveUnit::Attn});
  config.recompute.ratio = 0.1;
  testing::internal::CaptureStderr();
  const RecomputeChoice choice = choose_recompute(config);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(choice.plan.is_empty());
  EXPECT_TRUE(choice.units.units.empty());
  EXPECT_EQ(choice.warnings,
            (Lines{"--recompute-ratio 0.1 has no effect: of 5 layers that is none, rounded down "
                   "and without the last of the model, which stays; give 0.2 or more, or leave it "
                   "out",
                   "--save-units attn has no effect: no layer that is recomputed whole has it; "
                   "recompute more layers whole, or leave it out"}));
  for (const std::string& line : choice.warnings) EXPECT_NE(log.find(line), std::string::npos);
  EXPECT_EQ(log.find("kept resident"), std::string::npos) << log;

  config.recompute.ratio = 0.2;  // the least that the warning names
  EXPECT_EQ(choose_recompute(config).warnings, Lines{});
  EXPECT_EQ(choose_recompute(config).units.names(), Lines{"attn"});
}

TEST(RecomputeChoice, UnitsThatNoWholeLayerHasAreSaid) {
  RunConfig config = half_of_the_layers({SaveUnit::Attn, SaveUnit::Compressor});
  EXPECT_EQ(choose_recompute(config).warnings, Lines{});
  config.recompute.ratio = 0.2;  // L0, which has no compressor
  const RecomputeChoice choice = choose_recompute(config);
  EXPECT_EQ(choice.units.names(), Lines{"attn"});
  EXPECT_EQ(choice.units.kept_lines(), Lines{"save units kept resident: attn"});
  EXPECT_EQ(choice.warnings,
            Lines{"--save-units compressor has no effect: no layer that is recomputed whole has "
                  "it; recompute more layers whole, or leave it out"});
  // All is what the layers have, and that is told.
  config.recompute.save = {.kind = SaveSelection::Kind::All};
  EXPECT_EQ(choose_recompute(config).units.names(), (Lines{"attn", "moe_gate", "experts", "mhc"}));
  EXPECT_EQ(choose_recompute(config).warnings, Lines{});
}

TEST(RecomputeChoice, BlocksThatNoTwoLayersFormAreSaid) {
  RunConfig config = run_config();
  config.recompute.ratio = 0.5;
  config.recompute.mhc = true;
  config.recompute.mhc_layer_num = 2;
  EXPECT_EQ(choose_recompute(config).warnings, Lines{});
  config.recompute.ratio = 0.6;  // leaves L3 and the MTP block
  const RecomputeChoice choice = choose_recompute(config);
  EXPECT_TRUE(choice.plan.layer(3).find(SubgraphId::MlpPre) != nullptr);
  EXPECT_EQ(choice.warnings,
            Lines{"--mhc-recompute-layer-num 2 has no effect: no two layers that recompute mHC "
                  "follow each other, and an MTP block stands alone; leave it out"});
}

TEST(RecomputeChoice, APlanThatDoesNothingIsSaid) {
  const RecomputeChoice nothing = choose_recompute(run_config());
  EXPECT_EQ(nothing.warnings, Lines{});
  const TempFolder folder;
  save_plan(folder / "plan.json", nothing.subject, nothing.plan);
  const Lines read = choose_recompute(of_file(folder / "plan.json")).warnings;
  ASSERT_EQ(read.size(), 1u);
  EXPECT_NE(read[0].find("plan.json has no effect: this plan recomputes"), std::string::npos);

  RunConfig config = run_config();
  config.recompute.norm = true;
  config.recompute.norm_num_layers = 0;
  EXPECT_EQ(choose_recompute(config).warnings,
            Lines{"the settings of recompute have no effect: they choose no part of any layer"});
}

// R6.19: what --save-units all keeps, the model decides.
TEST(RecomputeChoice, OnlyDeclaredUnitsMayBeWrittenTo) {
  RunConfig config = half_of_the_layers({});
  config.recompute.save = {.kind = SaveSelection::Kind::All};
  config.recompute.allow_mutation = {.kind = SaveSelection::Kind::Listed, .units = {SaveUnit::Mhc}};
  EXPECT_EQ(choose_recompute(config).plan.layer(0).allow_mutation, Lines{"mhc"});
  config.recompute.allow_mutation.units = {SaveUnit::MoeDispatch};
  expect_error<ConfigError>(
      [&] { (void)choose_recompute(config); },
      {"--save-units-allow-mutation [RC19]", "got moe_dispatch", "deepseek_v4 does not have"});
}

// R6.14: a name that no build knows would cost memory silently.
TEST(RecomputeChoice, EveryDeclaredUnitHasItsOperatorsInThisBuild) {
  EXPECT_NO_THROW(validate_targets(deepseek_v4_save_targets(), save_names()));
  for (const SaveTarget& target : deepseek_v4_save_targets().targets)
    for (const std::string& name : target.names) EXPECT_TRUE(save_names().has_op(name)) << name;
  EXPECT_FALSE(save_names().has_op("lethe::no_such_operator"));
}

TEST(RecomputeChoice, StartAndDryRunNameLayersAndBytes) {
  const RunConfig config = csa_and_mhc();
  const RecomputeChoice choice = choose_recompute(config);
  const std::string lines = plan_lines(config, choice);
  EXPECT_NE(lines.find("plan    L3  main/ratio4 csa+mhc, frees "), std::string::npos) << lines;
  EXPECT_NE(lines.find(" KiB a layer and micro-batch\n"), std::string::npos) << lines;
  const std::string page = plan_page(config, choice);
  EXPECT_NE(page.find("(64 tokens)"), std::string::npos) << page;
  EXPECT_NE(page.find("    sparse           G5   frees"), std::string::npos) << page;
}

TEST(Units, ArePrintedForPeopleAndForPrograms) {
  RunConfig config = run_config();
  EXPECT_NE(units_page(config).find("compressor   operator  lethe::compressor"), std::string::npos);
  config.units.json = true;
  const nlohmann::json units = nlohmann::json::parse(units_page(config))["units"];
  ASSERT_EQ(units.size(), 5u);
  EXPECT_EQ(units[0]["unit"], "attn");
  EXPECT_EQ(units[0]["layers"], "L0-L3, MTP0");
  EXPECT_EQ(units[4]["layers"], "L1-L3");
  for (const auto& unit : units) EXPECT_TRUE(unit["missing"].empty()) << unit;
}

}  // namespace
}  // namespace lethe
