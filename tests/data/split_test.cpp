#include "lethe/data/split.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Ranges = std::vector<TokenRange>;

Corpus corpus_of(const std::vector<int64_t>& lengths) {
  ByteText text;
  for (const int64_t n : lengths) {
    const auto begin = static_cast<int64_t>(text.bytes.size());
    text.bytes.resize(text.bytes.size() + static_cast<size_t>(n));
    text.documents.push_back({begin, begin + n});
  }
  return Corpus(std::move(text));
}

struct Split {
  Ranges train, valid;
};

// The documents of either end.
Split split(const Corpus& corpus, double valid_fraction, int64_t seq_length) {
  const CorpusSplit ends = split_corpus(corpus, valid_fraction, seq_length);
  Split out;
  corpus.for_each_document(ends.train, [&](int64_t, TokenRange d) { out.train.push_back(d); });
  corpus.for_each_document(ends.valid, [&](int64_t, TokenRange d) { out.valid.push_back(d); });
  return out;
}

TEST(SplitCorpus, OneDocumentGivesItsLastBytesToValidation) {
  const Split ends = split(corpus_of({1000}), 0.1, 16);
  EXPECT_EQ(ends.train, (Ranges{{0, 900}}));
  EXPECT_EQ(ends.valid, (Ranges{{900, 1000}}));
}

TEST(SplitCorpus, FoldersAreCutAtTheNearestDocumentBoundary) {
  const Split ends = split(corpus_of({500, 380, 70, 50}), 0.1, 16);
  EXPECT_EQ(ends.train, (Ranges{{0, 500}, {500, 880}}));
  EXPECT_EQ(ends.valid, (Ranges{{880, 950}, {950, 1000}}));
}

TEST(SplitCorpus, OfTwoEquallyNearBoundariesTheSmallerPartWins) {
  const Split ends = split(corpus_of({880, 40, 80}), 0.1, 16);  // 120 or 80 for 100
  EXPECT_EQ(ends.valid, (Ranges{{920, 1000}}));
}

TEST(SplitCorpus, WithoutABoundaryNearTheFractionADocumentIsCut) {
  const Split ends = split(corpus_of({500, 500}), 0.1, 16);
  EXPECT_EQ(ends.train, (Ranges{{0, 500}, {500, 900}}));
  EXPECT_EQ(ends.valid, (Ranges{{900, 1000}}));
}

TEST(SplitCorpus, ABoundaryThatLeavesLessThanASequenceIsNotUsed) {
  const Split ends = split(corpus_of({940, 60}), 0.1, 64);  // 60 bytes hold no 64 + 1
  EXPECT_EQ(ends.train, (Ranges{{0, 900}}));
  EXPECT_EQ(ends.valid, (Ranges{{900, 940}, {940, 1000}}));
}

TEST(SplitCorpus, EveryByteIsInExactlyOnePartForAllFractions) {
  const Corpus corpus = corpus_of({30, 1, 400, 2, 2, 65, 100, 400});
  for (int percent = 5; percent <= 95; ++percent) {
    const Split ends = split(corpus, percent / 100.0, 8);
    int64_t next = 0;
    for (const Ranges* part : {&ends.train, &ends.valid})
      for (const TokenRange& range : *part) {
        EXPECT_EQ(range.begin, next);
        EXPECT_LT(range.begin, range.end);
        next = range.end;
      }
    EXPECT_EQ(next, 1000);
    EXPECT_GE(2 * split_corpus(corpus, percent / 100.0, 8).valid.size(), percent * 10) << percent;
    EXPECT_LE(2 * split_corpus(corpus, percent / 100.0, 8).valid.size(), 3 * percent * 10)
        << percent;
  }
}

TEST(SplitCorpus, FractionZeroKeepsNoValidationText) {
  const Split ends = split(corpus_of({17}), 0, 16);
  EXPECT_EQ(ends.train, (Ranges{{0, 17}}));
  EXPECT_TRUE(ends.valid.empty());
}

std::string error_of(const Corpus& corpus, double valid_fraction, int64_t seq_length) {
  try {
    split_corpus(corpus, valid_fraction, seq_length);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SplitCorpus, PartsShorterThanASequenceAreErrorsWithAllSizes) {
  const std::string valid = error_of(corpus_of({100}), 0.1, 10);
  for (const char* part :
       {"validation part", "10 + 1 tokens", "got 10", "100 tokens", "fraction 0.1"})
    EXPECT_NE(valid.find(part), std::string::npos) << part << " in: " << valid;
  EXPECT_NE(error_of(corpus_of({100}), 0.5, 99).find("training part"), std::string::npos);
  EXPECT_NE(error_of(corpus_of({16}), 0, 16).find("training part"), std::string::npos);
  EXPECT_EQ(error_of(corpus_of({110}), 0.1, 10), "no error");
}

TEST(SplitCorpus, FractionsOutsideTheRangeAreRefused) {
  for (const double fraction : {-0.1, 1.0, 1.5})
    EXPECT_THROW(split_corpus(corpus_of({1000}), fraction, 4), ConfigError) << fraction;
  EXPECT_THROW(split_corpus(corpus_of({1000}), 0.1, 0), ConfigError);
}

}  // namespace
}  // namespace lethe
