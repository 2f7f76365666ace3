#include "lethe/config/validate.h"

#include <functional>
#include <limits>
#include <map>
#include <set>

#include "config/models.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using testing::tiny_a;

using Change = std::function<void(ModelConfig&)>;

const std::map<std::string, std::vector<Change>>& breaking_changes() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  static const std::map<std::string, std::vector<Change>> changes = {
      {"M1",
       {[](auto& c) { c.vocab_size = 0; },
        [](auto& c) { c.window = -3; },
        [](auto& c) { c.streams = 0; },
        [](auto& c) { c.hidden = (1 << 24) + 1; },
        [](auto& c) { c.num_experts = 65537; }}},
      {"M2", {[](auto& c) { c.o_groups = 3; }}},
      {"M3", {[](auto& c) { c.head_dim = 33; }}},
      {"M4",
       {[](auto& c) { c.rope_dims = 7; },
        [](auto& c) { c.rope_dims = 18; },
        [](auto& c) { c.head_dim = 6; }}},
      {"M5", {[](auto& c) { c.index_head_dim = 24; }}},
      {"M6", {[](auto& c) { c.experts_per_token = 9; }}},
      {"M7", {[](auto& c) { c.num_hash_layers = 5; }, [](auto& c) { c.num_hash_layers = -1; }}},
      {"M8", {[](auto& c) { c.ratios.push_back(0); }, [](auto& c) { c.ratios.pop_back(); }}},
      {"M9", {[](auto& c) { c.ratios[0] = 1; }, [](auto& c) { c.ratios[2] = -4; }}},
      {"M10", {[](auto& c) { c.ratios[4] = 4; }}},
      {"M11", {[](auto& c) { c.num_mtp = -1; }}},
      {"M12", {[](auto& c) { c.score_function = "relu"; }}},
      {"M13",
       {[](auto& c) { c.route_scale = 0; },
        [](auto& c) { c.norm_eps = 0; },
        [](auto& c) { c.swiglu_limit = -1; },
        [](auto& c) { c.hc_eps = kNan; }}},
      {"M14", {[](auto& c) { c.rope_theta = 1; }, [](auto& c) { c.compress_rope_theta = kNan; }}},
      {"M15",
       {[](auto& c) { c.yarn->factor = 0.5; },
        [](auto& c) { c.yarn->original_max_positions = 0; },
        [](auto& c) { c.yarn->beta_slow = 40; }}},
      {"M16", {[](auto& c) {
         c.heads = 1 << 24;
         c.head_dim = 1 << 20;
         c.q_lora_rank = 1 << 20;
       }}},
  };
  return changes;
}

TEST(Validate, EveryRuleHasAWayToBreakItAndNamesItself) {
  std::set<std::string> rules;
  for (const ModelRule& rule : model_rules()) rules.insert(std::string(rule.id));
  for (const auto& [id, changes] : breaking_changes()) {
    EXPECT_EQ(rules.erase(id), 1U) << id;
    for (const Change& change : changes) {
      ModelConfig c = tiny_a();
      change(c);
      bool named = false;
      for (const std::string& line : model_violations(c, "model")) {
        named = named || line.starts_with("model [" + id + "]: ");
        EXPECT_NE(line.find(", got "), std::string::npos) << line;
        EXPECT_NE(line.find("; "), std::string::npos) << line;
      }
      EXPECT_TRUE(named) << id;
    }
  }
  EXPECT_TRUE(rules.empty()) << *rules.begin();
}

TEST(Validate, RecipesAndTestModelsAreValid) {
  for (const std::string& name : recipe_names()) {
    EXPECT_TRUE(model_violations(recipe(name), name).empty()) << name;
  }
  EXPECT_TRUE(model_violations(tiny_a(), "tiny-A").empty());
  EXPECT_TRUE(model_violations(testing::tiny_q(), "tiny-Q").empty());
}

TEST(Validate, SeveralHcaRatiosInOneModelAreAllowed) {
  ModelConfig c = tiny_a();
  c.ratios = {2, 3, 128, 4, 0};
  EXPECT_TRUE(model_violations(c, "model").empty());
}

TEST(Validate, AllViolationsComeInOneError) {
  ModelConfig c = tiny_a();
  c.o_groups = 3;
  c.experts_per_token = 9;
  c.ratios[4] = 4;
  try {
    validate(c, "config.json");
    FAIL() << "three rules are broken";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* id : {"config.json [M2]", "config.json [M6]", "config.json [M10]"}) {
      EXPECT_NE(text.find(id), std::string::npos) << id;
    }
  }
}

TEST(Recipes, UnknownNameIsAnsweredWithTheNearest) {
  try {
    (void)recipe("flsh");
    FAIL() << "no such recipe";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'flash'?"), std::string::npos)
        << error.what();
  }
}

TEST(Recipes, SchedulesAreThoseOfTheReleases) {
  const ModelConfig flash = recipe("flash");
  ASSERT_EQ(flash.ratios.size(), 44U);
  for (int64_t i = 0; i < 43; ++i) EXPECT_EQ(flash.ratio(i), i < 2 ? 0 : i % 2 == 0 ? 4 : 128);
  const ModelConfig pro = recipe("pro");
  ASSERT_EQ(pro.ratios.size(), 62U);
  for (int64_t i = 0; i < 61; ++i) EXPECT_EQ(pro.ratio(i), i == 0 || i % 2 == 1 ? 128 : 4);
  EXPECT_EQ(flash.ratios.back(), 0);
  EXPECT_EQ(pro.ratios.back(), 0);
}

}  // namespace
}  // namespace lethe
