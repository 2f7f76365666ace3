#include "lethe/config/data_blend.h"

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Parts = std::vector<BlendPart>;

TEST(DataBlend, OnePathIsAPathWhateverItIsCalled) {
  EXPECT_EQ(parse_data_blend("out/data"), (Parts{{"out/data", 1}}));
  EXPECT_EQ(parse_data_blend("my texts/a b"), (Parts{{"my texts/a b", 1}}));
  EXPECT_EQ(parse_data_blend("2024"), (Parts{{"2024", 1}}));
}

TEST(DataBlend, PairsOfWeightAndPath) {
  EXPECT_EQ(parse_data_blend("0.7 a  3 out/b"), (Parts{{"a", 0.7}, {"out/b", 3}}));
}

TEST(DataBlend, WhatIsNoBlendSaysWhy) {
  const auto refused = [](const char* text, std::initializer_list<const char*> parts) {
    test::expect_error<ConfigError>([&] { (void)parse_data_blend(text); }, parts);
  };
  refused("0.7 a 0.3", {"--data", "pairs", "3 words"});
  refused("0.7 a b 0.3", {"--data", "number > 0", "'b'"});
  refused("0 a 1 b", {"number > 0", "'0'"});
  refused("-1 a 1 b", {"number > 0"});
  refused("inf a 1 b", {"number > 0"});
  refused("1 a 2 a", {"once", "'a'"});
}

}  // namespace
}  // namespace lethe
