#include "lethe/cli/parse.h"

#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/cli/help.h"
#include "lethe/config/error_list.h"

namespace lethe {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& words) {
  try {
    ErrorList errors;
    for (const std::string& text : parse_command_line(words).raw.errors) errors.add(text);
    errors.raise();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The words given for a name, in order of use; a missing name gives none.
std::vector<Words> uses(const Invocation& invocation, const std::string& name) {
  std::vector<Words> found;
  for (const GivenSetting& given : invocation.raw.command_line)
    if (given.name == name) found.push_back(given.words);
  return found;
}

TEST(ParseCommandLine, FlagsBecomeSettingsUnderTheNameAsWritten) {
  const Invocation got = parse_command_line({"train",
                                             "--lr",
                                             "1e-3",
                                             "--index-topk=8",
                                             "--no-overwrite",
                                             "--csa-compress-ratios",
                                             "0",
                                             "4",
                                             "128",
                                             "--seed",
                                             "3"});
  EXPECT_EQ(got.command, "train");
  EXPECT_EQ(got.raw.command, "train");
  EXPECT_EQ(uses(got, "lr"), std::vector<Words>{{"1e-3"}});
  EXPECT_EQ(uses(got, "index-topk"), std::vector<Words>{{"8"}});
  EXPECT_EQ(uses(got, "overwrite"), std::vector<Words>{{"false"}});
  EXPECT_EQ(uses(got, "csa-compress-ratios"), (std::vector<Words>{{"0", "4", "128"}}));
  EXPECT_EQ(uses(got, "seed"), std::vector<Words>{{"3"}});
  EXPECT_FALSE(got.help || got.print_config || got.dry_run);
}

TEST(ParseCommandLine, ARepeatedFlagIsKeptTwiceForTheRules) {
  EXPECT_EQ(uses(parse_command_line({"train", "--lr", "1", "--lr", "2"}), "lr").size(), 2u);
  EXPECT_EQ(
      uses(parse_command_line({"train", "--overwrite", "--no-overwrite"}), "overwrite").size(), 2u);
  const Invocation lists =
      parse_command_line({"train", "--compress-ratios", "0", "4", "--compress-ratios", "8"});
  EXPECT_EQ(uses(lists, "compress-ratios"), (std::vector<Words>{{"0", "4"}, {"8"}}));
}

TEST(ParseCommandLine, ABracketedListIsOneWord) {
  const Invocation got =
      parse_command_line({"train", "--csa-compress-ratios", "[0, 4]", "--lr", "1"});
  EXPECT_EQ(uses(got, "csa-compress-ratios"), std::vector<Words>{{"[0, 4]"}});
}

TEST(ParseCommandLine, ANegativeNumberIsAValue) {
  EXPECT_EQ(uses(parse_command_line({"train", "--lr", "-1e-3"}), "lr"),
            std::vector<Words>{{"-1e-3"}});
  EXPECT_EQ(uses(parse_command_line({"generate", "DIR", "--prompt", "--x"}), "prompt"),
            std::vector<Words>{{"--x"}});
  EXPECT_EQ(uses(parse_command_line({"generate", "DIR", "--prompt", ""}), "prompt"),
            std::vector<Words>{{""}});
}

TEST(ParseCommandLine, CommonFlagsAreRead) {
  const Invocation got = parse_command_line(
      {"train", "--config", "a.toml", "--config", "b.toml", "--print-config", "--dry-run"});
  EXPECT_EQ(got.raw.config_files, (Words{"a.toml", "b.toml"}));
  EXPECT_TRUE(got.print_config && got.dry_run);
}

TEST(ParseCommandLine, AFlagWithoutItsValueIsRefused) {
  EXPECT_TRUE(has(error_of({"train", "--lr"}), "lethe train [usage]"));
  EXPECT_TRUE(has(error_of({"train", "--output", "--overwrite"}),
                  "--output [usage]: must have a value, got the flag '--overwrite'"));
  EXPECT_TRUE(has(error_of({"train", "--config", "--lr", "1"}), "--config [usage]"));
  EXPECT_TRUE(has(error_of({"train", "--csa-compress-ratios", "--lr", "1"}), "[usage]"));
  EXPECT_TRUE(has(error_of({"train", "--overwrite=false"}), "[usage]"));
}

TEST(ParseCommandLine, AnUnknownFlagNamesItsNeighbour) {
  EXPECT_TRUE(
      has(error_of({"train", "--num-layer", "4"}),
          "--num-layer [unknown]: must be a setting of lethe train, got an unknown name; did "
          "you mean '--num-layers'?"));
  EXPECT_TRUE(has(error_of({"train", "--num_layers", "4"}), "did you mean '--num-layers'?"));
  EXPECT_TRUE(has(error_of({"train", "--print-confg"}), "did you mean '--print-config'?"));
  EXPECT_TRUE(has(error_of({"train", "-lr", "1"}), "-lr [unknown]"));
  EXPECT_TRUE(has(error_of({"train", "--no-lr"}), "--no-lr [unknown]"));
}

TEST(ParseCommandLine, AFlagThatIsNotBuiltSaysSo) {
  EXPECT_TRUE(has(error_of({"train", "--tensor-model-parallel-size", "2"}),
                  "--tensor-model-parallel-size [not-built]"));
  EXPECT_TRUE(has(error_of({"train", "--memory-budget=1"}), "--memory-budget [not-built]"));
  EXPECT_TRUE(has(error_of({"train", "--spec", "a", "b"}), "use --model dsv4"));
}

TEST(ParseCommandLine, AFlagOfAnotherCommandIsRefused) {
  EXPECT_TRUE(has(error_of({"generate", "DIR", "--lr", "1"}),
                  "--lr [command]: must be a setting of lethe generate, got one of lethe train"));
}

TEST(ParseCommandLine, EveryWrongFlagIsReportedAtOnce) {
  const std::string text = error_of({"train", "--wrong", "1", "--export", "x", "--prompt", "y"});
  EXPECT_TRUE(has(text, "3 errors:"));
  EXPECT_TRUE(has(text, "--wrong [unknown]") && has(text, "--export [not-built]") &&
              has(text, "--prompt [command]"));
}

TEST(ParseCommandLine, BrokenRulesAreReportedBesideWrongFlags) {
  try {
    (void)resolve(parse_command_line({"train", "--recipe", "tiny", "--wrong", "1", "--lr=x"}).raw);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(has(error.what(), "2 errors:"));
    EXPECT_TRUE(has(error.what(), "--wrong [unknown]") && has(error.what(), "--lr [type]"));
  }
}

TEST(ParseCommandLine, PositionalWordsAreCounted) {
  EXPECT_EQ(parse_command_line({"generate", "out/model", "--seed", "1"}).positional,
            Words{"out/model"});
  EXPECT_EQ(parse_command_line({"compare", "--dtype", "fp64", "T"}).positional, Words{"T"});
  EXPECT_TRUE(has(error_of({"compare"}), "must be given one DIR, got none"));
  EXPECT_TRUE(has(error_of({"compare", "a", "b"}), "got 2 words (a b)"));
  EXPECT_TRUE(has(error_of({"train", "tiny"}), "must be given flags only"));
}

TEST(ParseCommandLine, CommandsOfTwoWordsAndManyFiles) {
  const Invocation prepare =
      parse_command_line({"data", "prepare", "a", "--output-prefix", "out/x", "b"});
  EXPECT_EQ(prepare.command, "data prepare");
  EXPECT_EQ(prepare.positional, (Words{"a", "b"}));
  EXPECT_TRUE(has(error_of({"data", "prepare"}), "must be given INPUT ..., got none"));
  EXPECT_TRUE(has(error_of({"data"}), "must start with a command"));
  EXPECT_EQ(parse_command_line({"runs"}).positional, Words{});
  EXPECT_EQ(parse_command_line({"runs", "--compare", "a", "b"}).positional, (Words{"a", "b"}));
  EXPECT_EQ(parse_command_line({"tokenize", "-"}).positional, Words{"-"});
}

TEST(ParseCommandLine, ACommandMustExist) {
  EXPECT_TRUE(has(error_of({"trian"}), "did you mean 'train'?"));
  EXPECT_TRUE(has(error_of({"plan"}), "lethe plan [not-built]"));
  EXPECT_TRUE(has(error_of({"--lr", "1"}), "must start with a command"));
}

TEST(ParseCommandLine, HelpComesBeforeEveryCheck) {
  EXPECT_TRUE(parse_command_line({}).help);
  EXPECT_TRUE(parse_command_line({"--help"}).help);
  const Invocation got = parse_command_line({"train", "--wrong", "--help"});
  EXPECT_TRUE(got.help);
  EXPECT_EQ(got.command, "train");
  EXPECT_TRUE(parse_command_line({"compare", "-h"}).help);
}

TEST(Help, EveryCommandTeachesWithExamples) {
  for (const CommandInfo& info : commands()) {
    const std::string text = help_text(info.name);
    EXPECT_TRUE(has(text, "Usage: lethe " + std::string(info.name))) << info.name;
    EXPECT_TRUE(has(text, info.about.substr(0, 20).data())) << info.name;
    for (const std::string_view example : info.examples)
      EXPECT_TRUE(has(text, std::string(example))) << example;
    EXPECT_TRUE(has(text, "--config FILE")) << info.name;
    EXPECT_TRUE(has(help_text(""), std::string(info.summary))) << info.name;
  }
  EXPECT_THROW(help_text("dance"), ConfigError);
}

TEST(Help, EveryExampleParses) {
  for (const CommandInfo& info : commands()) {
    for (const std::string_view example : info.examples) {
      Words words;
      const std::string line(example.substr(
          0, std::min({example.find(" #"), example.find(" >"), example.find(" <")})));
      for (size_t begin = 0; begin < line.size();) {
        const bool is_quoted = line[begin] == '\'';
        begin += is_quoted ? 1 : 0;
        const size_t end = std::min(line.find(is_quoted ? '\'' : ' ', begin), line.size());
        if (end > begin) words.push_back(line.substr(begin, end - begin));
        begin = end + 1;
      }
      ASSERT_EQ(words.at(0), "lethe");
      words.erase(words.begin());
      EXPECT_EQ(error_of(words), "accepted") << example;
    }
  }
}

}  // namespace
}  // namespace lethe
