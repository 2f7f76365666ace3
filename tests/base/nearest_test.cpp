#include "lethe/base/nearest.h"

#include <vector>

#include <gtest/gtest.h>

namespace lethe {
namespace {

const std::vector<std::string> kFlags{
    "hidden-size", "num-layers", "num-experts", "lr", "lr-warmup-steps"};

TEST(Nearest, DistanceCountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("layers", "layesr"), 1u);
  EXPECT_EQ(edit_distance("layers", "layer"), 1u);
}

TEST(Nearest, DistanceIsSymmetric) {
  for (const auto& a : kFlags)
    for (const auto& b : kFlags)
      EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
}

TEST(Nearest, AMisspelledNameFindsItsFlag) {
  EXPECT_EQ(nearest_match("hiden-size", kFlags), "hidden-size");
  EXPECT_EQ(nearest_match("num-layer", kFlags), "num-layers");
  EXPECT_EQ(nearest_match("num-expret", kFlags), "num-experts");
}

TEST(Nearest, UnderscoresAndCaseDoNotCount) {
  EXPECT_EQ(nearest_match("Hidden_Size", kFlags), "hidden-size");
  EXPECT_EQ(nearest_match("LR_WARMUP_STEPS", kFlags), "lr-warmup-steps");
}

TEST(Nearest, AnUnrelatedNameFindsNothing) {
  EXPECT_EQ(nearest_match("tokenizer", kFlags), std::nullopt);
  EXPECT_EQ(nearest_match("xy", kFlags), std::nullopt);
  EXPECT_EQ(nearest_match("anything", {}), std::nullopt);
}

TEST(Nearest, TheFirstOfEqualCandidatesWins) {
  const std::vector<std::string> names{"rate-a", "rate-b"};
  EXPECT_EQ(nearest_match("rate-c", names), "rate-a");
}

TEST(Nearest, TheSentenceNamesTheMatchOrTheAlternative) {
  EXPECT_EQ(did_you_mean("num_layer", kFlags, "see --help"), "did you mean 'num-layers'?");
  EXPECT_EQ(did_you_mean("tokenizer", kFlags, "see --help"), "see --help");
}

}  // namespace
}  // namespace lethe
