#include <map>
#include <stdexcept>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/config/settings_table_impl.h"
#include "lethe/config/settings_value.h"

namespace lethe {
namespace {

const std::vector<Setting>& rows() {
  static const std::vector<Setting> all = [] {
    detail::SettingTable table;
    detail::add_swap_settings(table);
    return std::move(table.rows());
  }();
  return all;
}

SwapConfig with(const std::string& flag, const std::string& word) {
  RunConfig config;
  for (const Setting& row : rows()) {
    if (row.flag != flag) continue;
    GivenSetting given;
    given.name = flag;
    given.words = {word};
    given.shown = "--" + flag;
    std::vector<std::string> notes;
    row.set(config, parse_value(row, given, notes));
    return config.swap;
  }
  throw std::out_of_range(flag);
}

TEST(SwapSettings, NothingIsSwappedByDefault) {
  std::string text;
  for (const Setting& row : rows()) {
    text += fmt::format("{} {} {} {} {}\n",
                        row.flag,
                        type_name(row.type),
                        row.default_text(),
                        row.rule(),
                        row.on_resume == OnResume::Free && row.commands == command::kTrain);
    EXPECT_FALSE(row.help.empty());
  }
  EXPECT_EQ(text,
            "swap-layer-input bool false  true\n"
            "offload-budget-mb int 4096 >= 1 and <= 1e+07 true\n"
            "offload-folder string memory  true\n"
            "swap-prefetch-distance int 1 >= 0 true\n"
            "swap-min-bytes int 4096 >= 0 true\n");
}

TEST(SwapSettings, EveryRowReachesItsMember) {
  EXPECT_TRUE(with("swap-layer-input", "true").layer_input);
  EXPECT_EQ(with("offload-budget-mb", "64").offload_budget_mb, 64);
  EXPECT_EQ(with("offload-folder", "scratch").offload_folder, "scratch");
  EXPECT_EQ(with("swap-prefetch-distance", "3").prefetch_distance, 3);
  EXPECT_EQ(with("swap-min-bytes", "0").min_bytes, 0);
}

TEST(SwapSettings, ValuesOutOfRangeAreRefused) {
  const auto give = [](const char* flag, const char* word) {
    return [flag, word] { (void)with(flag, word); };
  };
  test::expect_error<ConfigError>(give("offload-budget-mb", "0"),
                                  {"--offload-budget-mb [range]", ">= 1", "got 0"});
  test::expect_error<ConfigError>(give("swap-prefetch-distance", "-1"), {">= 0", "got -1"});
  test::expect_error<ConfigError>(give("swap-min-bytes", "-1"), {">= 0", "got -1"});
}

}  // namespace
}  // namespace lethe
