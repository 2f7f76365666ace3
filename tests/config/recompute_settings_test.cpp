#include <map>
#include <set>
#include <stdexcept>

#include "support/expect_error.h"
#include "support/tiny_configs.h"
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "lethe/config/recompute_rules.h"
#include "lethe/config/settings_table_impl.h"
#include "lethe/config/settings_value.h"

namespace lethe {
namespace {

using test::expect_error;

const std::vector<Setting>& rows() {
  static const std::vector<Setting> all = [] {
    detail::SettingTable table;
    detail::add_recompute_settings(table);
    return std::move(table.rows());
  }();
  return all;
}

const Setting& row(const std::string& flag) {
  for (const Setting& one : rows())
    if (one.flag == flag) return one;
  throw std::out_of_range(flag);
}

/// What a resume may do with it.
const char* resume_word(OnResume rule) {
  return rule == OnResume::FreeTogether ? "together" : rule == OnResume::Free ? "free" : "session";
}

/// A configuration of tiny-A with these flags; each is its words.
RunConfig with(const std::vector<std::vector<std::string>>& flags) {
  RunConfig config;
  config.model = test::tiny_a();
  std::vector<std::string> notes;
  for (const auto& words : flags) {
    GivenSetting given;
    given.name = words[0];
    given.words.assign(words.begin() + 1, words.end());
    given.shown = "--" + words[0];
    row(words[0]).set(config, parse_value(row(words[0]), given, notes));
  }
  return config;
}

/// Ids of the broken rules; the first text in `text`.
std::vector<std::string> broken(const RunConfig& config, std::string* text = nullptr) {
  std::vector<std::string> ids;
  for (const RunRule& rule : recompute_rules()) {
    const std::string what = rule.broken(config);
    if (what.empty()) continue;
    ids.emplace_back(rule.id);
    if (text != nullptr && ids.size() == 1)
      *text = fmt::format("{} [{}]: {}", rule.flag, rule.id, what);
  }
  return ids;
}

using Ids = std::vector<std::string>;

void refuse(const std::vector<std::vector<std::string>>& flags,
            const Ids& ids,
            std::initializer_list<const char*> parts) {
  std::string text;
  EXPECT_EQ(broken(with(flags), &text), ids) << text;
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

void accept(const std::vector<std::vector<std::string>>& flags) {
  std::string text;
  EXPECT_EQ(broken(with(flags), &text), Ids{}) << text;
}

// T1.1: names, types, defaults.
TEST(RecomputeSettings, FlagsAreOffByDefault) {
  std::string text;
  for (const Setting& one : rows())
    text += fmt::format("{} {} {} {}\n",
                        one.flag,
                        type_name(one.type),
                        one.default_text(),
                        one.commands == command::kTrain ? resume_word(one.on_resume) : "?");
  EXPECT_EQ(text,
            "recompute-granularity enum none together\n"
            "recompute-method enum none together\n"
            "recompute-num-layers int not set together\n"
            "enable-recompute-layers-per-pp-rank bool false together\n"
            "recompute-ratio float not set together\n"
            "vision-recompute-ratio float not set together\n"
            "fsdp-recompute-ratio float not set together\n"
            "fsdp-vision-recompute-ratio float not set together\n"
            "recompute-mtp enum include together\n"
            "recompute-modules word list [\"core_attn\"] together\n"
            "recompute-csa-attention bool false together\n"
            "recompute-csa-keep-output bool false together\n"
            "mhc-recompute bool false together\n"
            "mhc-recompute-layer-num int 1 together\n"
            "recompute-norm bool false together\n"
            "recompute-norm-num-layers int not set together\n"
            "save-units word list [] together\n"
            "save-units-allow-mutation word list [] together\n"
            "save-units-missing enum error together\n"
            "recompute-plan string not set together\n"
            "save-recompute-plan string none session\n"
            "recompute-checks enum off free\n"
            "recompute-stats bool false free\n");
  accept({});
  EXPECT_FALSE(recomputes_layers({}) || recomputes_mhc({}) || recomputes_norms({}));
}

TEST(RecomputeSettings, EveryRowReachesTheConfigurationAndIsDocumented) {
  const std::map<std::string, std::vector<std::string>> values = {
      {"recompute-granularity", {"full"}},
      {"recompute-method", {"block"}},
      {"recompute-mtp", {"skip"}},
      {"recompute-modules", {"moe", "mhc"}},
      {"save-units", {"attn", "moe_gate"}},
      {"save-units-allow-mutation", {"attn", "mhc"}},
      {"save-units-missing", {"warn"}},
      {"recompute-plan", {"p.json"}},
      {"recompute-checks", {"bitwise"}},
      {"save-recompute-plan", {"q.json"}}};
  for (const Setting& one : rows()) {
    std::vector<std::string> words = {one.flag};
    if (const auto found = values.find(one.flag); found != values.end())
      words.insert(words.end(), found->second.begin(), found->second.end());
    else
      words.emplace_back(one.type == SettingType::Bool    ? "true"
                         : one.type == SettingType::Float ? "0.5"
                                                          : "2");
    const RunConfig config = with({words});
    EXPECT_NE(config.recompute, RecomputeConfig{}) << one.flag;
    // What is printed is read back.
    RunConfig again = with({});
    GivenSetting given;
    given.shown = "--" + one.flag;
    const SettingValue value = *one.get(config);
    const auto* text = std::get_if<std::string>(&value);
    given.words = {text != nullptr ? *text : value_text(value)};
    std::vector<std::string> notes;
    one.set(again, parse_value(one, given, notes));
    EXPECT_EQ(again, config) << one.flag;
    EXPECT_FALSE(one.help.empty());
  }
}

TEST(RecomputeSettings, ValuesOutOfRangeAreRefused) {
  const auto give = [](std::vector<std::string> words) { return [words] { (void)with({words}); }; };
  expect_error<ConfigError>(give({"recompute-num-layers", "0"}), {"[range]", ">= 1", "got 0"});
  expect_error<ConfigError>(give({"recompute-ratio", "1.5"}), {">= 0 and <= 1", "got 1.5"});
  expect_error<ConfigError>(give({"mhc-recompute-layer-num", "0"}), {">= 1", "got 0"});
  expect_error<ConfigError>(give({"recompute-norm-num-layers", "-1"}), {">= 0", "got -1"});
  expect_error<ConfigError>(give({"recompute-granularity", "half"}),
                            {"none, full, selective", "got 'half'"});
  expect_error<ConfigError>(give({"recompute-modules", "attn"}),
                            {"core_attn, moe_act", "got [\"attn\"]"});
  expect_error<ConfigError>(give({"recompute-modules", "moe", "moe"}), {"each stands once"});
  expect_error<ConfigError>(give({"recompute-plan", ""}), {"--recompute-plan"});
}

// R6.2: nothing, all and a list differ; R6.4: readable names; R6.6: unknown names.
TEST(RecomputeSettings, SaveUnitsAreTriState) {
  using Kind = SaveSelection::Kind;
  const auto read = [](std::vector<std::string> words) {
    words.insert(words.begin(), "save-units");
    return with({words}).recompute.save;
  };
  EXPECT_EQ(read({"none"}), SaveSelection{});
  EXPECT_EQ(read({"false"}), SaveSelection{});
  EXPECT_EQ(read({"all"}).kind, Kind::All);
  EXPECT_EQ(read({"true"}).kind, Kind::All);
  EXPECT_EQ(read({"moe_gate", "attn"}),
            (SaveSelection{.kind = Kind::Listed, .units = {SaveUnit::MoeGate, SaveUnit::Attn}}));
  EXPECT_EQ(read({"[attn, mhc]"}).units, (std::vector{SaveUnit::Attn, SaveUnit::Mhc}));
  for (const SaveUnit unit : save_units()) EXPECT_EQ(find_save_unit(save_unit_name(unit)), unit);
  expect_error<ConfigError>([&] { (void)read({"moe_gates"}); },
                            {"attn, moe_gate, moe_dispatch, experts, mhc, compressor",
                             "got 'moe_gates'",
                             "did you mean 'moe_gate'"});
  expect_error<ConfigError>([&] { (void)read({"attn", "attn"}); }, {"'attn' twice"});
  expect_error<ConfigError>([&] { (void)read({"attn", "all"}); }, {"'all' beside others"});
}

// A TOML file has lists, and true or false.
TEST(RecomputeSettings, SaveUnitsOfAFile) {
  const auto read = [](GivenSetting::Form form, std::vector<std::string> words) {
    GivenSetting given;
    given.form = form;
    given.words = std::move(words);
    given.shown = "save_units (a.toml:1)";
    std::vector<std::string> notes;
    RunConfig config;
    row("save-units").set(config, parse_value(row("save-units"), given, notes));
    return config.recompute.save.kind;
  };
  EXPECT_EQ(read(GivenSetting::Form::List, {"attn"}), SaveSelection::Kind::Listed);
  EXPECT_EQ(read(GivenSetting::Form::Bool, {"true"}), SaveSelection::Kind::All);
  EXPECT_EQ(read(GivenSetting::Form::Bool, {"false"}), SaveSelection::Kind::Nothing);
  expect_error<ConfigError>([&] { (void)read(GivenSetting::Form::Number, {"3"}); },
                            {"save_units (a.toml:1) [type]", "a list of texts"});
}

TEST(RecomputeSettings, WholeLayersNeedMethodAndNumber) {
  const std::vector<std::string> full = {"recompute-granularity", "full"};
  accept({full, {"recompute-method", "block"}, {"recompute-num-layers", "2"}});
  refuse({full, {"recompute-num-layers", "2"}}, {"RC1"}, {"--recompute-method [RC1]", "got none"});
  refuse({full, {"recompute-method", "uniform"}},
         {"RC3"},
         {"--recompute-num-layers [RC3]", "must be given", "got nothing"});
  refuse({{"recompute-method", "uniform"}}, {"RC2"}, {"got uniform", "leave it out"});
  refuse({{"recompute-num-layers", "3"}}, {"RC4"}, {"recompute_granularity = none, got 3"});
  refuse({{"recompute-granularity", "selective"}, {"recompute-num-layers", "3"}},
         {"RC4"},
         {"recompute_granularity = selective, got 3"});
  refuse({full, {"recompute-method", "block"}, {"recompute-num-layers", "6"}},
         {"RC5"},
         {"<= 5", "got 6"});
  refuse({{"enable-recompute-layers-per-pp-rank", "true"}},
         {"RC6"},
         {"recompute_num_layers or recompute_norm_num_layers", "got neither"});
}

TEST(RecomputeSettings, ModulesAreOfSelectiveAndMhcIsNotInMlp) {
  const std::vector<std::string> selective = {"recompute-granularity", "selective"};
  accept({selective});
  accept({selective, {"recompute-modules", "mhc", "moe"}});
  refuse({{"recompute-modules", "moe"}}, {"RC7"}, {"recompute_granularity = selective, got none"});
  refuse({selective, {"recompute-modules", "mlp", "mhc"}}, {"RC8"}, {"mlp together with mHC"});
  refuse(
      {selective, {"recompute-modules", "mlp"}, {"mhc-recompute", "true"}}, {"RC8"}, {"got both"});
}

TEST(RecomputeSettings, DependentFlagsNeedTheirMain) {
  refuse({{"recompute-csa-keep-output", "true"}}, {"RC10"}, {"--recompute-csa-attention", "alone"});
  accept({{"recompute-csa-keep-output", "true"}, {"recompute-csa-attention", "true"}});
  refuse({{"mhc-recompute-layer-num", "2"}}, {"RC11"}, {"--mhc-recompute or mhc", "got 2"});
  accept({{"mhc-recompute-layer-num", "2"}, {"mhc-recompute", "true"}});
  accept({{"mhc-recompute-layer-num", "2"},
          {"recompute-granularity", "selective"},
          {"recompute-modules", "mhc"}});
  refuse({{"recompute-norm-num-layers", "1"}}, {"RC12"}, {"--recompute-norm", "got 1 without"});
  refuse({{"recompute-norm", "true"}, {"recompute-norm-num-layers", "5"}},
         {"RC12"},
         {"<= num_layers = 4, got 5"});
  accept({{"recompute-norm", "true"}, {"recompute-norm-num-layers", "0"}});
}

TEST(RecomputeSettings, SaveUnitsNeedWholeLayers) {
  const std::vector<std::string> attn = {"save-units", "attn"}, ratio = {"recompute-ratio", "0.5"};
  accept({attn, ratio});
  accept({attn,
          {"recompute-granularity", "full"},
          {"recompute-method", "block"},
          {"recompute-num-layers", "2"}});
  refuse({attn}, {"RC13"}, {"--save-units [RC13]", "got none", "--recompute-ratio"});
  refuse({attn, {"recompute-ratio", "0"}}, {"RC13"}, {});
  refuse({{"save-units-missing", "warn"}}, {"RC15"}, {"--save-units", "got warn without"});
  refuse({ratio,
          {"recompute-granularity", "full"},
          {"recompute-method", "block"},
          {"recompute-num-layers", "2"}},
         {"RC16"},
         {"chooses layers too, got 0.5"});
}

// One keeps the attention, the other drops it: on the same layers an error.
TEST(RecomputeSettings, TheAttentionIsNotKeptWhereTheCsaFlagDropsIt) {
  const std::vector<std::string> attn = {"save-units", "attn"}, all = {"save-units", "all"},
                                 csa = {"recompute-csa-attention", "true"},
                                 full = {"recompute-granularity", "full"},
                                 block = {"recompute-method", "block"};
  // The example of the command-line specification 7.7: no layer keeps, every one drops.
  refuse({attn, csa}, {"RC13", "RC14"}, {});
  const auto whole = [](const char* layers) {
    return std::vector<std::string>{"recompute-num-layers", layers};
  };
  refuse({attn, csa, full, block, whole("5")}, {"RC14"}, {});
  refuse({all, csa, full, {"recompute-method", "uniform"}, whole("1")}, {"RC14"}, {});
  // Whole layers keep it, the others drop it.
  accept({attn, csa, full, block, whole("2")});
  accept({attn, csa, {"recompute-ratio", "0.5"}});
  accept({all, csa, {"recompute-ratio", "0.5"}});
}

// R6.19.
TEST(RecomputeSettings, OnlyKeptUnitsMayBeWrittenTo) {
  using Kind = SaveSelection::Kind;
  const std::vector<std::string> ratio = {"recompute-ratio", "0.5"},
                                 units = {"save-units", "attn", "mhc"}, all = {"save-units", "all"};
  const auto written = [](std::vector<std::string> words) {
    words.insert(words.begin(), "save-units-allow-mutation");
    return words;
  };
  EXPECT_EQ(with({}).recompute.allow_mutation, SaveSelection{});
  EXPECT_EQ(with({written({"mhc"})}).recompute.allow_mutation,
            (SaveSelection{.kind = Kind::Listed, .units = {SaveUnit::Mhc}}));
  EXPECT_EQ(with({written({"all"})}).recompute.allow_mutation.kind, Kind::All);
  accept({ratio, units, written({"mhc"})});
  accept({ratio, units, written({"all"})});
  accept({ratio, all, written({"attn"})});
  accept({written({"none"})});
  refuse({ratio, units, written({"attn", "experts"})},
         {"RC19"},
         {"--save-units-allow-mutation [RC19]", "got experts, which is not kept", "keep it too"});
  refuse({ratio, written({"attn"})}, {"RC19"}, {"must have --save-units, got attn without"});
}

TEST(RecomputeSettings, APlanFileStandsAlone) {
  accept({{"recompute-plan", "p.json"}});
  accept({{"recompute-plan", "p.json"},
          {"save-recompute-plan", "q.json"},
          {"recompute-checks", "checked"},
          {"recompute-stats", "true"}});
  const std::vector<std::vector<std::string>> others = {{"recompute-csa-attention", "true"},
                                                        {"mhc-recompute", "true"},
                                                        {"recompute-mtp", "skip"},
                                                        {"recompute-ratio", "0.5"}};
  for (const std::vector<std::string>& other : others)
    refuse({{"recompute-plan", "p.json"}, other},
           {"RC17"},
           {"--recompute-plan [RC17]", "only choice", "got p.json"});
}

// R6.28 to R6.32; unset is nothing and not 1.
TEST(RecomputeSettings, RatiosMoveFromTheirDeprecatedPlaces) {
  std::vector<std::string> notes;
  RecomputeConfig config = with_moved_ratios({}, notes);
  EXPECT_EQ(config, RecomputeConfig{});
  EXPECT_TRUE(notes.empty());

  config = with_moved_ratios(with({{"recompute-ratio", "0.25"}}).recompute, notes);
  EXPECT_EQ(config.ratio, 0.25);
  EXPECT_TRUE(notes.empty());

  const RunConfig old =
      with({{"fsdp-recompute-ratio", "0.5"}, {"fsdp-vision-recompute-ratio", "0.75"}});
  config = with_moved_ratios(old.recompute, notes);
  EXPECT_EQ(config.ratio, 0.5);
  EXPECT_EQ(config.vision_ratio, 0.75);
  EXPECT_FALSE(config.fsdp_ratio || config.fsdp_vision_ratio);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0],
            "--fsdp-recompute-ratio is deprecated and goes with version 1.0: write "
            "--recompute-ratio 0.5 instead");

  for (const char* again : {"0.5", "0.25"})
    expect_error<ConfigError>(
        [&] {
          (void)with_moved_ratios(
              with({{"fsdp-recompute-ratio", "0.5"}, {"recompute-ratio", again}}).recompute, notes);
        },
        {"--fsdp-recompute-ratio [R6.30]", "--recompute-ratio", again, "got 0.5"});
}

TEST(RecomputeSettings, EveryRuleHasAnIdOfItsOwn) {
  std::set<std::string> ids;
  for (const RunRule& rule : recompute_rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_NO_THROW((void)row(std::string(rule.flag).substr(2))) << rule.flag;
  }
  EXPECT_EQ(ids.size(), 18u);
}

}  // namespace
}  // namespace lethe
