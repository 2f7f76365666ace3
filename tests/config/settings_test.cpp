#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/config/settings_schema.h"
#include "lethe/config/settings_text.h"
#include "lethe/config/settings_value.h"
#include "lethe/config/toml_file.h"

namespace lethe {
namespace {

GivenSetting flag(const std::string& name, std::vector<std::string> words) {
  GivenSetting given;
  given.name = name;
  given.words = std::move(words);
  given.shown = "--" + name;
  given.origin = "command line";
  return given;
}

SettingValue parse(const std::string& name, std::vector<std::string> words) {
  std::vector<std::string> notes;
  return parse_value(*find_setting(name), flag(name, std::move(words)), notes);
}

std::string error_of(const std::string& name, std::vector<std::string> words) {
  try {
    parse(name, std::move(words));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

/// A value that the row accepts and that is not its default.
SettingValue other_value(const Setting& row) {
  const std::optional<SettingValue> value = row.get(built_in_config());
  switch (row.type) {
    case SettingType::Int:
      return value ? std::get<int64_t>(*value) + 2 : int64_t{2};
    case SettingType::Float:
      return value ? std::get<double>(*value) * 0.5 + 0.25 : 0.25;
    case SettingType::Bool:
      return !std::get<bool>(*value);
    case SettingType::Enum:
      return *value == SettingValue(row.choices[0]) ? row.choices[1] : row.choices[0];
    case SettingType::String:
      if (row.flag == "operator-implementation") return "rms_norm=none";
      return (value ? std::get<std::string>(*value) : "") + "x";
    case SettingType::IntList:
      return std::vector<int64_t>{4, 0};
    case SettingType::WordList:
      return std::vector<std::string>{row.flag.starts_with("save-units") ? "attn" : "moe"};
  }
  return int64_t{0};
}

std::string snapshot() {
  std::string text;
  for (const Setting& row : settings()) {
    if (row.status == SettingStatus::NotBuilt) {
      text += fmt::format("--{} | not built\n", row.flag);
      continue;
    }
    text += fmt::format("--{} | {} | {} | {} | {} | {}\n",
                        row.flag,
                        type_name(row.type),
                        row.default_text(),
                        row.rule(),
                        fmt::join(row.aliases, " "),
                        command_names(row.commands));
  }
  return text;
}

TEST(Settings, FlagsAreTheOnesOfTheCommittedList) {
  std::ifstream file(LETHE_SOURCE_DIR "/tests/config/flags.txt");
  const std::string expected{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
  const std::string actual = snapshot();
  const std::string written = testing::TempDir() + "flags.txt";
  if (actual != expected) std::ofstream(written) << actual;
  EXPECT_EQ(expected, actual) << "if the change is meant: cp " << written
                              << " tests/config/flags.txt";
}

TEST(Settings, EveryNameFindsItsRowWithDashesAndUnderscores) {
  std::set<std::string> keys;
  for (const Setting& row : settings()) {
    EXPECT_TRUE(keys.insert(row.key()).second) << row.key();
    EXPECT_EQ(find_setting(row.flag), &row);
    EXPECT_EQ(find_setting(row.key()), &row);
    for (const std::string& alias : row.aliases) EXPECT_EQ(find_setting(alias), &row) << alias;
  }
  EXPECT_EQ(find_setting("no-such-flag"), nullptr);
}

TEST(Settings, EveryRowSaysWhatItMeansOrWhatToDoInstead) {
  for (const Setting& row : settings()) {
    const bool is_built = row.status != SettingStatus::NotBuilt;
    EXPECT_EQ(row.help.empty(), !is_built) << row.flag;
    const bool refuses =
        row.status == SettingStatus::NotBuilt || row.status == SettingStatus::Constant;
    EXPECT_EQ(row.advice.empty(), !refuses) << row.flag;
    EXPECT_NE(row.commands, 0u) << row.flag;
  }
}

// Known failures A2: a key that nothing reads.
TEST(Settings, EveryActiveKeySetToAnotherValueChangesTheConfiguration) {
  for (const Setting& row : settings()) {
    if (row.status != SettingStatus::Active) continue;
    std::vector<std::string> notes;
    const SettingValue value = other_value(row);
    GivenSetting given = flag(row.flag, {value_text(value)});
    if (const auto* text = std::get_if<std::string>(&value)) given.words = {*text};
    RunConfig config = built_in_config();
    row.set(config, parse_value(row, given, notes));
    EXPECT_FALSE(config == built_in_config()) << row.flag;
    EXPECT_EQ(row.get(config), value) << row.flag;
  }
}

// Known failures A4: 1e-20 read as text.
TEST(Settings, EverySpellingOfATinyNumberIsNumeric) {
  for (const char* word : {"1e-20", "1.0e-20", "1E-20", "+1e-20", "0.1e-19"}) {
    EXPECT_EQ(std::get<double>(parse("adam-eps", {word})), 1e-20) << word;
  }
  for (const char* line : {"adam_eps = 1e-20", "adam_eps = 1.0e-20", "adam_eps = 1E-20"}) {
    std::vector<std::string> notes;
    const GivenSetting given = parse_toml(line, "a.toml").at(0);
    EXPECT_EQ(std::get<double>(parse_value(*find_setting("adam_eps"), given, notes)), 1e-20)
        << line;
  }
}

TEST(Settings, AValueOfTheWrongTypeIsRefused) {
  EXPECT_NE(
      error_of("num-layers", {"4.0"}).find("--num-layers [type]: must be an integer, got '4.0'"),
      std::string::npos);
  EXPECT_NE(error_of("num-layers", {"99999999999999999999"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("num-layers", {""}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("lr", {"fast"}).find("[type]: must be a finite number"), std::string::npos);
  EXPECT_NE(error_of("lr", {"1e-3x"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("lr", {"nan"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("lr", {"inf"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("overwrite", {"yes"}).find("[type]: must be true or false"),
            std::string::npos);
  EXPECT_NE(error_of("csa-compress-ratios", {"0", "four"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("lr", {"1", "2"}).find("[type]: must be one value"), std::string::npos);
}

TEST(Settings, EveryBoundOfTheTableAcceptsItsInsideAndRefusesItsOutside) {
  int checked = 0;
  for (const Setting& row : settings()) {
    if (row.type != SettingType::Int && row.type != SettingType::Float) continue;
    const bool whole = row.type == SettingType::Int;
    const auto word = [&](double number) {
      return whole ? fmt::format("{}", static_cast<int64_t>(number)) : fmt::format("{}", number);
    };
    const double step = whole ? 1 : 1e-3;
    if (row.range.min) {
      EXPECT_EQ(error_of(row.flag, {word(*row.range.min + step)}), "accepted") << row.flag;
      EXPECT_EQ(error_of(row.flag, {word(*row.range.min)}) == "accepted", !row.range.min_open)
          << row.flag;
      EXPECT_NE(error_of(row.flag, {word(*row.range.min - step)}).find("[range]"),
                std::string::npos)
          << row.flag;
      ++checked;
    }
    if (row.range.max) {
      EXPECT_EQ(error_of(row.flag, {word(*row.range.max)}) == "accepted", !row.range.max_open)
          << row.flag;
      EXPECT_NE(error_of(row.flag, {word(*row.range.max + step)}).find("[range]"),
                std::string::npos)
          << row.flag;
      ++checked;
    }
  }
  EXPECT_GT(checked, 40);
}

TEST(Settings, EveryChoiceIsAcceptedAndAnythingElseIsRefused) {
  for (const Setting& row : settings()) {
    if (row.type != SettingType::Enum) continue;
    for (const std::string& choice : row.choices)
      EXPECT_EQ(error_of(row.flag, {choice}), "accepted") << row.flag;
    EXPECT_NE(error_of(row.flag, {"Nonsense"}).find("[choice]: must be one of"), std::string::npos)
        << row.flag;
    for (const std::string& later : row.later_choices)
      EXPECT_NE(error_of(row.flag, {later}).find("[not-built]"), std::string::npos) << row.flag;
  }
  EXPECT_NE(error_of("ckpt-format", {"torch"})
                .find("the specification knows and this build does not have yet"),
            std::string::npos);
}

TEST(Settings, ARatioListIsReadInEverySpelling) {
  const SettingValue expected = std::vector<int64_t>{0, 4, 128};
  EXPECT_EQ(parse("csa-compress-ratios", {"0", "4", "128"}), expected);
  EXPECT_EQ(parse("csa-compress-ratios", {"[0,4,128]"}), expected);
  EXPECT_EQ(parse("csa-compress-ratios", {"[0, 4, 128,]"}), expected);
  EXPECT_EQ(parse("csa-compress-ratios", {"[0,", "4,", "128]"}), expected);
  EXPECT_EQ(parse("csa-compress-ratios", {"(0, 4, 128)"}), expected);
  EXPECT_EQ(parse("csa-compress-ratios", {"[]"}), SettingValue(std::vector<int64_t>{}));
  EXPECT_NE(error_of("csa-compress-ratios", {"[0, 4"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("csa-compress-ratios", {"[0,,4]"}).find("[type]"), std::string::npos);
  EXPECT_NE(error_of("csa-compress-ratios", {"["}).find("[type]"), std::string::npos);
}

TEST(Settings, ARatioOfOneIsReadAsZeroAndSaysSo) {
  std::vector<std::string> notes;
  const SettingValue value = parse_value(
      *find_setting("csa-compress-ratios"), flag("csa-compress-ratios", {"1", "4"}), notes);
  EXPECT_EQ(value, SettingValue(std::vector<int64_t>{0, 4}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("read as 0"), std::string::npos);
}

TEST(Settings, TwoHcaRatiosOrANegativeOneAreRefused) {
  EXPECT_NE(error_of("csa-compress-ratios", {"8", "128"}).find("at most one HCA ratio"),
            std::string::npos);
  EXPECT_NE(error_of("csa-compress-ratios", {"0", "-4"}).find("every entry must be"),
            std::string::npos);
  EXPECT_EQ(error_of("csa-compress-ratios", {"8", "4", "8", "0"}), "accepted");
}

TEST(Settings, TheYarnFactorIsZeroOrAtLeastOne) {
  EXPECT_EQ(error_of("rotary-scaling-factor", {"0"}), "accepted");
  EXPECT_EQ(error_of("rotary-scaling-factor", {"1"}), "accepted");
  EXPECT_NE(error_of("rotary-scaling-factor", {"0.5"}).find("[range]"), std::string::npos);
}

TEST(Settings, EveryValueIsReadBackFromItsText) {
  for (const double number :
       {1e-20, 0.1, 160000.0, 1.0 / 3.0, std::numeric_limits<double>::denorm_min()}) {
    const GivenSetting given = parse_toml("lr = " + value_text(number), "a.toml").at(0);
    EXPECT_EQ(std::strtod(given.words.at(0).c_str(), nullptr), number);
  }
  const std::string hard = "a \"quoted\" \\ line\nand a tab\t, umlaut \xc3\xa4 \x7f";
  EXPECT_EQ(parse_toml("prompt = " + value_text(hard), "a.toml").at(0).words.at(0), hard);
}

TEST(TomlFile, KeysAreFlatOrBelowANamedTable) {
  const auto given = parse_toml(
      "num_layers = 4\n[train]\nlr = 1\n[model]\ncsa_compress_ratios = [0, 4]\n", "a.toml");
  ASSERT_EQ(given.size(), 3u);
  for (const GivenSetting& one : given) {
    if (one.name != "csa_compress_ratios") continue;
    EXPECT_EQ(one.words, (std::vector<std::string>{"0", "4"}));
    EXPECT_EQ(one.origin, "a.toml:5");
    EXPECT_EQ(one.shown, "csa_compress_ratios (a.toml:5)");
  }
}

std::string toml_error(const std::string& text) {
  try {
    std::vector<std::string> notes;
    for (const GivenSetting& given : parse_toml(text, "a.toml"))
      (void)parse_value(*find_setting(given.name), given, notes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TomlFile, WhatIsNotASettingIsRefusedWithItsLine) {
  EXPECT_NE(toml_error("\nlr = = 1").find("a.toml:2 [toml]"), std::string::npos);
  EXPECT_NE(toml_error("[weather]\nrain = 1").find("a.toml:1 [table]"), std::string::npos);
  EXPECT_NE(toml_error("[model.inner]\nlr = 1").find("[type]"), std::string::npos);
  EXPECT_NE(toml_error("lr = 1979-05-27").find("[type]"), std::string::npos);
  EXPECT_NE(toml_error("lr = \"1e-3\"").find("without quotes"), std::string::npos);
  EXPECT_NE(toml_error("num_layers = [4]").find("[type]"), std::string::npos);
  EXPECT_NE(toml_error("overwrite = 1").find("[type]"), std::string::npos);
  EXPECT_NE(toml_error("output = 1").find("[type]"), std::string::npos);
  EXPECT_EQ(toml_error("csa_compress_ratios = \"[0, 4]\""), "accepted");
}

TEST(TomlFile, AFileThatCannotBeReadIsNamed) {
  EXPECT_THROW(read_toml_file("/no/such/file.toml"), ConfigError);
  EXPECT_THROW(read_toml_file("/"), ConfigError);
}

TEST(SettingsText, HelpNamesEverySettingOfItsCommandWithItsDefault) {
  const std::string help = settings_help(command::kTrain);
  for (const Setting& row : settings()) {
    const bool shown = row.status != SettingStatus::NotBuilt && row.applies_to(command::kTrain);
    const std::string name =
        row.type == SettingType::Bool ? "--[no-]" + row.flag + "\n" : "--" + row.flag + " ";
    EXPECT_EQ(help.find("  " + name) != std::string::npos, shown) << row.flag;
  }
  EXPECT_NE(help.find("[default 128; >= 1]"), std::string::npos);
  EXPECT_NE(help.find("--csa-window-size"), std::string::npos);
  size_t begin = 0;
  for (size_t end = 0; (end = help.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
}

TEST(SettingsText, TheReferencePageHasEveryFlagAndAlias) {
  const std::string page = settings_markdown();
  for (const Setting& row : settings()) {
    EXPECT_NE(page.find(row.flag), std::string::npos) << row.flag;
    for (const std::string& alias : row.aliases)
      EXPECT_NE(page.find("`--" + alias + "`"), std::string::npos) << alias;
  }
}

}  // namespace
}  // namespace lethe
