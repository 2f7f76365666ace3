#include "lethe/data/split.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Ranges = std::vector<TextRange>;

ByteText text_of(const std::vector<int64_t>& lengths) {
  ByteText text;
  for (const int64_t n : lengths) {
    const auto begin = static_cast<int64_t>(text.bytes.size());
    text.bytes.resize(text.bytes.size() + static_cast<size_t>(n));
    text.documents.push_back({begin, begin + n});
  }
  return text;
}

TEST(SplitText, OneDocumentGivesItsLastBytesToValidation) {
  const TextSplit split = split_text(text_of({1000}), 0.1, 16);
  EXPECT_EQ(split.train, (Ranges{{0, 900}}));
  EXPECT_EQ(split.valid, (Ranges{{900, 1000}}));
}

TEST(SplitText, FoldersAreCutAtTheNearestDocumentBoundary) {
  const TextSplit split = split_text(text_of({500, 380, 70, 50}), 0.1, 16);
  EXPECT_EQ(split.train, (Ranges{{0, 500}, {500, 880}}));
  EXPECT_EQ(split.valid, (Ranges{{880, 950}, {950, 1000}}));
}

TEST(SplitText, OfTwoEquallyNearBoundariesTheSmallerPartWins) {
  const TextSplit split = split_text(text_of({880, 40, 80}), 0.1, 16);  // 120 or 80 for 100
  EXPECT_EQ(split.valid, (Ranges{{920, 1000}}));
}

TEST(SplitText, WithoutABoundaryNearTheFractionADocumentIsCut) {
  const TextSplit split = split_text(text_of({500, 500}), 0.1, 16);
  EXPECT_EQ(split.train, (Ranges{{0, 500}, {500, 900}}));
  EXPECT_EQ(split.valid, (Ranges{{900, 1000}}));
}

TEST(SplitText, ABoundaryThatLeavesLessThanASequenceIsNotUsed) {
  const TextSplit split = split_text(text_of({940, 60}), 0.1, 64);  // 60 bytes hold no 64 + 1
  EXPECT_EQ(split.train, (Ranges{{0, 900}}));
  EXPECT_EQ(split.valid, (Ranges{{900, 940}, {940, 1000}}));
}

TEST(SplitText, EveryByteIsInExactlyOnePartForAllFractions) {
  const ByteText text = text_of({30, 1, 400, 2, 2, 65, 100, 400});
  for (int percent = 5; percent <= 95; ++percent) {
    const TextSplit split = split_text(text, percent / 100.0, 8);
    int64_t next = 0;
    for (const Ranges* part : {&split.train, &split.valid})
      for (const TextRange& range : *part) {
        EXPECT_EQ(range.begin, next);
        EXPECT_LT(range.begin, range.end);
        next = range.end;
      }
    EXPECT_EQ(next, 1000);
    EXPECT_GE(2 * total_size(split.valid), percent * 10) << percent;
    EXPECT_LE(2 * total_size(split.valid), 3 * percent * 10) << percent;
  }
}

TEST(SplitText, FractionZeroKeepsNoValidationText) {
  const TextSplit split = split_text(text_of({17}), 0, 16);
  EXPECT_EQ(split.train, (Ranges{{0, 17}}));
  EXPECT_TRUE(split.valid.empty());
}

std::string error_of(const ByteText& text, double valid_fraction, int64_t seq_length) {
  try {
    split_text(text, valid_fraction, seq_length);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SplitText, PartsShorterThanASequenceAreErrorsWithAllSizes) {
  const std::string valid = error_of(text_of({100}), 0.1, 10);
  for (const char* part :
       {"validation text", "10 + 1 bytes", "got 10", "100 bytes", "fraction 0.1"})
    EXPECT_NE(valid.find(part), std::string::npos) << part << " in: " << valid;
  EXPECT_NE(error_of(text_of({100}), 0.5, 99).find("training text"), std::string::npos);
  EXPECT_NE(error_of(text_of({16}), 0, 16).find("training text"), std::string::npos);
  EXPECT_EQ(error_of(text_of({110}), 0.1, 10), "no error");
}

TEST(SplitText, FractionsOutsideTheRangeAreRefused) {
  for (const double fraction : {-0.1, 1.0, 1.5})
    EXPECT_THROW(split_text(text_of({1000}), fraction, 4), ConfigError) << fraction;
  EXPECT_THROW(split_text(text_of({1000}), 0.1, 0), ConfigError);
}

}  // namespace
}  // namespace lethe
