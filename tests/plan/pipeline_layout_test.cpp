#include "lethe/plan/pipeline_layout.h"

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_error;

/// The stages written out, '|' between them.
std::string stages(std::string_view text) {
  std::string out;
  for (const auto& stage : parse_layout(text).stages) {
    out += "|";
    for (const StageItem item : stage) out += static_cast<char>(item);
  }
  return out.substr(1);
}

TEST(PipelineLayout, RepeatsAndGroupsAreWrittenOut) {
  EXPECT_EQ(stages("Et*3|tL"), "Ettt|tL");
  EXPECT_EQ(stages("(tt|)*4"), "tt|tt|tt|tt|");
  EXPECT_EQ(stages("(|tm)*2,EL"), "|tm|tmEL");
  EXPECT_EQ(stages("Et(tm|LE|tt)*2,mL"), "Ettm|LE|tttm|LE|ttmL");
  EXPECT_EQ(stages("(t*2|)*2m"), "tt|tt|m");
  EXPECT_EQ(stages("E|*2t"), "E||t");
  EXPECT_EQ(stages("E,t,t*2,L"), "EtttL");
  EXPECT_EQ(stages("E|t|t*2|t||(t|)*2,t*2,L"), "E|t|tt|t||t|t|ttL");
  EXPECT_EQ(stages(""), "");
}

TEST(PipelineLayout, TheListFormNamesTheParts) {
  const PipelineLayout layout = read_layout(LayoutSource(std::vector<std::vector<std::string>>{
      {"embedding", "Decoder"}, {}, {" decoder ", "MTP", "loss"}}));
  EXPECT_EQ(layout.stages, parse_layout("Et||tmL").stages);
  EXPECT_EQ(read_layout(layout), layout);
  EXPECT_EQ(read_layout(LayoutSource(std::string("Et||tmL"))).stages, layout.stages);
  expect_error<ConfigError>(
      [] { (void)read_layout(LayoutSource(std::vector<std::vector<std::string>>{{"encoder"}})); },
      {"[V11]", "got 'encoder'"});
}

TEST(PipelineLayout, ErrorsNameTheColumn) {
  const auto refuse = [](const char* text, std::initializer_list<const char*> parts) {
    expect_error<ConfigError>([text] { (void)parse_layout(text); }, parts);
  };
  refuse("Et x", {"[V11]", "column 3", "got ' '"});
  refuse("Etx", {"[V11]", "column 3", "got 'x'"});
  refuse("t*0", {"count >= 1", "got 0"});
  refuse("t*", {"column 3", "count behind '*'", "got none"});
  refuse("t*1,2", {"column 5", "behind a comma", "got '2'"});
  refuse("((t)*2)*2", {"column 2", "group inside a group"});
  refuse("(tt", {"column 4", "group of column 1"});
  refuse("(tt)|L", {"count '*n' behind a group"});
  refuse("t)", {"column 2", "got ')'"});
  refuse("2t", {"column 1", "got '2'"});
  refuse("t*9999999", {"up to 1000000"});
  refuse("(t*1000)*1001", {"at most 1000000 items"});
}

LayoutNeeds needs(int64_t ranks, int64_t layers, int64_t mtp = 0) {
  return {.pipeline_ranks = ranks, .num_layers = layers, .num_mtp = mtp};
}

TEST(PipelineLayout, LayoutsOfTheSpecificationAreAccepted) {
  EXPECT_NO_THROW(check_layout(parse_layout("E|t|t*2|t||(t|)*2,t*2,L"), needs(4, 8)));
  EXPECT_NO_THROW(check_layout(parse_layout("Et|t*4|t|tL"), needs(2, 7)));
  EXPECT_NO_THROW(check_layout(parse_layout("Et*3|(tt|)*29,m|L"), needs(8, 61, 1)));
  EXPECT_NO_THROW(check_layout(parse_layout("E|t*6|t|L"), needs(4, 7)));
  EXPECT_NO_THROW(check_layout(parse_layout("Et*2|(tt|)*29,t|mL"), needs(16, 61, 1)));
  EXPECT_NO_THROW(check_layout(parse_layout("EttmL"), needs(1, 2, 1)));
}

void refuse(const char* layout,
            const LayoutNeeds& wanted,
            std::initializer_list<const char*> parts) {
  expect_error<ConfigError>([&] { check_layout(parse_layout(layout), wanted); }, parts);
}

TEST(PipelineLayout, EveryRuleOfALayoutHasItsError) {
  refuse("Et|t|tL", needs(2, 3), {"[V1]", "multiple of 2", "got 3"});
  LayoutNeeds two = needs(2, 3);
  two.virtual_stages = 2;
  refuse("Et|ttL", two, {"[V2]", "must have 4 stages", "got 2"});
  refuse("t|tL", needs(2, 2), {"[V3]", "0 of E"});
  refuse("Et|t", needs(2, 2), {"[V3]", "0 of L"});
  refuse("tE|tL", needs(2, 2), {"[V3]", "elsewhere"});
  refuse("EEt|tL", needs(2, 2), {"[V3]", "2 of E"});
  refuse("", needs(1, 1), {"[V3]"});
  refuse("Et|tL", needs(2, 3), {"[V4]", "num_layers = 3", "got 2"});
  refuse("Et|tmL", needs(2, 2), {"[V5]", "mtp_num_layers = 0", "got 1"});
  refuse("Etm|tL", needs(2, 2, 1), {"[V6]", "no t behind an m"});
  refuse("Et|tm|L|", needs(2, 2, 1), {"[V7]", "chunk 0 of 2"});
  refuse("Et|tm|mL|", needs(4, 2, 2), {"[V8]", "got 2 stages"});
  refuse("EtL", needs(1, 0), {"[V15]", "at least one layer", "got 0 and 1"});
  refuse("EtL", needs(0, 1), {"[V15]"});
  LayoutNeeds overlap = needs(4, 2);
  overlap.overlap = true;
  refuse("E|t|t|L", overlap, {"[V12]", "stages 0, 3"});
}

}  // namespace
}  // namespace lethe
