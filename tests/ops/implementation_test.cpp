#include "lethe/ops/implementation.h"

#include <algorithm>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "lethe/base/error.h"
#include "lethe/ops/rms_norm.h"

namespace lethe::ops {
namespace {

// The choice of the process is restored whatever a test does.
class ImplementationChoices : public testing::Test {
 protected:
  void SetUp() override { reset_implementations_that_ran(); }

  void TearDown() override { choose_implementations({}); }

  static std::string ran() {
    const auto all = implementations_that_ran();
    const auto found = all.find("rms_norm");
    return found == all.end() ? "" : found->second;
  }

  static void run(at::ScalarType dtype) {
    static_cast<void>(rms_norm(at::ones({2, 8}, dtype), {}, 1e-6));
  }
};

TEST_F(ImplementationChoices, WithoutOneFloat32IsFusedAndFloat64IsNot) {
  run(at::kFloat);
  EXPECT_EQ(ran().rfind("fused (", 0), 0U) << ran();
  reset_implementations_that_ran();
  run(at::kDouble);
  EXPECT_EQ(ran(), "reference");
  run(at::kFloat);
  EXPECT_NE(ran().find(" and reference"), std::string::npos) << ran();
}

TEST_F(ImplementationChoices, NoneRunsTheReference) {
  choose_implementations({.all = Implementation::Reference, .overrides = {}});
  run(at::kFloat);
  EXPECT_EQ(ran(), "reference");
}

TEST_F(ImplementationChoices, AnExceptionCountsForItsOperatorAlone) {
  choose_implementations(
      {.all = Implementation::Reference, .overrides = {{"rms_norm", Implementation::Fused}}});
  run(at::kFloat);
  EXPECT_EQ(ran().rfind("fused (", 0), 0U) << ran();
}

TEST_F(ImplementationChoices, FusedNeverFallsBack) {
  choose_implementations({.all = Implementation::Fused, .overrides = {}});
  test::expect_error<ConfigError>([] { run(at::kDouble); },
                                  {"rms_norm", "float32", "float64", "none or auto"});
}

TEST_F(ImplementationChoices, AnUnknownOperatorIsNamedWithTheNearest) {
  test::expect_error<ConfigError>(
      [] {
        choose_implementations({.overrides = {{"rms_nrom", Implementation::Fused}}});
      },
      {"rms_nrom", "did you mean 'rms_norm'"});
}

TEST_F(ImplementationChoices, WordsAreThoseOfTheFlag) {
  EXPECT_EQ(parse_implementation("auto"), Implementation::Auto);
  EXPECT_EQ(parse_implementation("none"), Implementation::Reference);
  EXPECT_EQ(parse_implementation("fused"), Implementation::Fused);
  test::expect_error<ConfigError>([] { static_cast<void>(parse_implementation("fast")); },
                                  {"fast", "auto, none or fused"});
}

}  // namespace
}  // namespace lethe::ops
