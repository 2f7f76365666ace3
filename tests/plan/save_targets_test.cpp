#include "lethe/plan/save_targets.h"

#include <algorithm>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_error;

SaveNames only(std::vector<std::string> ops, std::vector<std::string> callables = {}) {
  const auto has = [](std::vector<std::string> names) {
    return [names](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
  };
  return {.has_op = has(std::move(ops)), .has_callable = has(std::move(callables))};
}

const SaveTargetMap kMap{
    .model_type = "toy",
    .targets = {
        {.unit = SaveUnit::Attn, .names = {"a::v2", "a::v3"}},
        {.unit = SaveUnit::MoeGate, .kind = TargetKind::KeptCallables, .names = {"gate.project"}}}};

SaveSelection listed(std::vector<SaveUnit> units) {
  return {.kind = SaveSelection::Kind::Listed, .units = std::move(units)};
}

ResolvedUnits resolve(const SaveSelection& selection,
                      const SaveNames& names,
                      MissingUnits missing = MissingUnits::Error) {
  return resolve_save_units(selection, kMap, names, missing);
}

// R6.2, R6.27.
TEST(SaveUnits, NothingMeansNothing) {
  const ResolvedUnits units = resolve({}, only({"a::v3"}, {"gate.project"}));
  EXPECT_TRUE(units.units.empty());
  EXPECT_FALSE(units.keeps_ops());
  EXPECT_TRUE(units.warnings.empty());
  EXPECT_TRUE(units.kept_lines().empty());
}

// R6.2, R6.3, R6.13.
TEST(SaveUnits, AllIsWhatTheModelDeclaresAndTheListIsLogged) {
  const ResolvedUnits units =
      resolve({.kind = SaveSelection::Kind::All}, only({"a::v2", "a::v3"}, {"gate.project"}));
  EXPECT_EQ(units.names(), (std::vector<std::string>{"attn", "moe_gate"}));
  EXPECT_TRUE(units.keeps_ops());
  EXPECT_EQ(units.kept_lines(),
            (std::vector<std::string>{
                "save units kept resident: attn moe_gate",
                "save unit moe_gate skips gate.project in replays and keeps what they return"}));
}

// R6.8: one of several spellings is enough, the others are a debug line.
TEST(SaveUnits, OneOfSeveralSpellingsIsEnough) {
  const ResolvedUnits units = resolve(listed({SaveUnit::Attn}), only({"a::v3"}));
  ASSERT_EQ(units.units.size(), 1u);
  EXPECT_EQ(units.units[0].names, (std::vector<std::string>{"a::v3"}));
  EXPECT_EQ(units.debugs, (std::vector<std::string>{"save unit attn: a::v2 does not exist here"}));
  EXPECT_TRUE(units.warnings.empty());
}

// R6.27.
TEST(SaveUnits, CallablesAloneNeedNoLookAtOperators) {
  EXPECT_FALSE(resolve(listed({SaveUnit::MoeGate}), only({}, {"gate.project"})).keeps_ops());
}

// R6.9: every name tried, and the units that would resolve; R6.26: every unit in one error.
TEST(SaveUnits, AUnitOfWhichNothingExistsIsAnError) {
  expect_error<ConfigError>(
      [] { (void)resolve(listed({SaveUnit::Attn}), only({}, {"gate.project"})); },
      {"--save-units attn [R6.9]", "none of a::v2, a::v3", "units that would resolve: moe_gate"});
  expect_error<ConfigError>(
      [] {
        (void)resolve(listed({SaveUnit::Attn, SaveUnit::MoeGate}), only({}));
      },
      {"2 errors", "--save-units attn [R6.9]", "--save-units moe_gate [R6.9]"});
}

// R6.9, R6.12.
TEST(SaveUnits, WarnLeavesTheUnitOut) {
  const ResolvedUnits units =
      resolve(listed({SaveUnit::Attn}), only({}, {"gate.project"}), MissingUnits::Warn);
  EXPECT_TRUE(units.units.empty());
  ASSERT_EQ(units.warnings.size(), 2u);
  EXPECT_NE(units.warnings[0].find("none of a::v2, a::v3"), std::string::npos);
  EXPECT_NE(units.warnings[1].find("layers are recomputed whole"), std::string::npos);
}

// R6.10.
TEST(SaveUnits, AUnitThatTheModelLacksIsAnErrorEvenUnderWarn) {
  expect_error<ConfigError>(
      [] { (void)resolve(listed({SaveUnit::Experts}), only({"a::v3"}), MissingUnits::Warn); },
      {"--save-units experts [R6.10]",
       "a unit of toy, which has attn, moe_gate",
       "composed of others",
       "the part that owns the layers"});
}

// R6.7, R6.11.
TEST(SaveUnits, AllOfAnEmptyMapHasNoEffectAndSaysSo) {
  const SaveTargetMap empty{.model_type = "wrapper", .targets = {}};
  EXPECT_NO_THROW(validate_targets(empty, only({})));
  const SaveSelection all{.kind = SaveSelection::Kind::All};
  expect_error<ConfigError>(
      [&] { (void)resolve_save_units(all, empty, only({}), MissingUnits::Error); },
      {"[R6.11]", "no effect: wrapper declares no save units, every region is recomputed"});
  const ResolvedUnits units = resolve_save_units(all, empty, only({}), MissingUnits::Warn);
  EXPECT_TRUE(units.units.empty());
  EXPECT_NE(units.warnings.at(0).find("[R6.11]"), std::string::npos);
}

// R6.14, R6.21, R6.22, SC13: declarations, in this repository and outside.
TEST(SaveUnits, WrongDeclarationsAreRefused) {
  const auto check = [](SaveTarget target, const SaveNames& names) {
    return [target, names] { validate_targets({.model_type = "toy", .targets = {target}}, names); };
  };
  const SaveNames names = only({"a::x"}, {"f"});
  EXPECT_NO_THROW(check({.names = {"a::x"}}, names)());
  expect_error<ConfigError>(check({.names = {"a::y"}}, names),
                            {"save target attn [R6.14]", "got a::y"});
  expect_error<ConfigError>(check({.names = {}}, names), {"[R6.14]", "got no names"});
  expect_error<ConfigError>(check({.names = {"a::x"}, .writes_in_place = true}, names),
                            {"[SC13]", "must not write to an argument"});
  expect_error<ConfigError>(check({.kind = TargetKind::KeptCallables,
                                   .names = {"f"},
                                   .collective = UnitCollective::Partial},
                                  names),
                            {"[SC13]", "must hold a collective whole"});
  expect_error<ConfigError>(check({.names = {"a::x"}, .collective = UnitCollective::Whole}, names),
                            {"[R6.22]", "callable around it"});
  EXPECT_NO_THROW(check(
      {.kind = TargetKind::KeptCallables, .names = {"f"}, .collective = UnitCollective::Whole},
      names)());
  expect_error<ConfigError>(
      [&] {
        validate_targets(
            {.model_type = "toy", .targets = {{.names = {"a::x"}}, {.names = {"a::x"}}}}, names);
      },
      {"[R6.14]", "declared once"});
}

TEST(SaveUnits, TheMapOfDeepSeekV4IsSound) {
  const SaveTargetMap& map = deepseek_v4_save_targets();
  std::vector<std::string> ops;
  for (const SaveTarget& target : map.targets)
    ops.insert(ops.end(), target.names.begin(), target.names.end());
  EXPECT_NO_THROW(validate_targets(map, only(ops)));
  EXPECT_EQ(
      resolve_save_units({.kind = SaveSelection::Kind::All}, map, only(ops), MissingUnits::Error)
          .names(),
      (std::vector<std::string>{"attn", "moe_gate", "experts", "mhc", "compressor"}));
}

}  // namespace
}  // namespace lethe
