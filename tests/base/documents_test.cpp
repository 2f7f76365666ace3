#include "lethe/base/documents.h"

#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::string error_of(const std::vector<int32_t>& cu) {
  try {
    Documents docs{std::span<const int32_t>(cu)};
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Documents, CumulativeStartsAndLengthsDescribeTheSamePack) {
  const std::vector<int64_t> lengths{3, 1, 5};
  const auto docs = Documents::from_lengths(lengths);
  EXPECT_EQ(docs.cu_seqlens(), (std::vector<int32_t>{0, 3, 4, 9}));
  EXPECT_EQ(docs.count(), 3);
  EXPECT_EQ(docs.tokens(), 9);
  EXPECT_EQ(docs.begin(2), 4);
  EXPECT_EQ(docs.end(2), 9);
  EXPECT_EQ(docs.length(1), 1);
  EXPECT_EQ(docs.longest(), 5);
}

TEST(Documents, PositionsRestartAtEveryDocument) {
  const std::vector<int64_t> lengths{3, 1, 2};
  EXPECT_EQ(Documents::from_lengths(lengths).positions(), (std::vector<int64_t>{0, 1, 2, 0, 0, 1}));
}

TEST(Documents, SlotsAreCountedPerDocumentAroundTheRatio) {
  struct Case {
    int64_t ratio;
    std::vector<int64_t> lengths;  // 1, r - 1, r, r + 1, 2r
    std::vector<int32_t> cu_slots;
    std::vector<int64_t> positions;
  };

  const std::vector<Case> cases{
      {4, {1, 3, 4, 5, 8}, {0, 0, 0, 1, 2, 4}, {0, 0, 0, 4}},
      {128, {1, 127, 128, 129, 256}, {0, 0, 0, 1, 2, 4}, {0, 0, 0, 128}},
      {8, {1, 7, 8, 9, 16}, {0, 0, 0, 1, 2, 4}, {0, 0, 0, 8}},
      {2, {1, 1, 2, 3, 4}, {0, 0, 0, 1, 2, 4}, {0, 0, 0, 2}},
  };
  for (const auto& c : cases) {
    const auto docs = Documents::from_lengths(c.lengths);
    EXPECT_EQ(docs.cu_slots(c.ratio), c.cu_slots) << "ratio " << c.ratio;
    EXPECT_EQ(docs.slot_positions(c.ratio), c.positions) << "ratio " << c.ratio;
  }
}

TEST(Documents, PackingNeverMakesASlotThatSeparateDocumentsLack) {
  // 3 + 3 tokens hold no complete window of 4, though 6 tokens of one document would.
  const std::vector<int64_t> packed{3, 3};
  const std::vector<int64_t> single{6};
  EXPECT_EQ(Documents::from_lengths(packed).cu_slots(4).back(), 0);
  EXPECT_EQ(Documents::from_lengths(single).cu_slots(4).back(), 1);
}

TEST(Documents, AQuerySeesTheSlotsWhoseWindowIsComplete) {
  EXPECT_EQ(visible_slots(0, 4, 10), 0);
  EXPECT_EQ(visible_slots(2, 4, 10), 0);
  EXPECT_EQ(visible_slots(3, 4, 10), 1);
  EXPECT_EQ(visible_slots(6, 4, 10), 1);
  EXPECT_EQ(visible_slots(7, 4, 10), 2);
  EXPECT_EQ(visible_slots(126, 128, 1), 0);
  EXPECT_EQ(visible_slots(127, 128, 1), 1);
  EXPECT_EQ(visible_slots(1000, 4, 3), 3);
}

TEST(Documents, MalformedStartsAreRefusedWithTheOffendingEntry) {
  EXPECT_TRUE(contains(error_of({}), "got 0 entries"));
  EXPECT_TRUE(contains(error_of({0}), "got 1 entries beginning with 0"));
  EXPECT_TRUE(contains(error_of({1, 4}), "beginning with 1"));
  EXPECT_TRUE(contains(error_of({0, 4, 4}), "got [2] = 4 after 4"));
  EXPECT_TRUE(contains(error_of({0, 4, 3}), "got [2] = 3 after 4"));
  EXPECT_TRUE(contains(error_of({0, -1}), "got [1] = -1 after 0"));
  EXPECT_EQ(error_of({0, 1}), "accepted");
}

TEST(Documents, LengthsBelowOneAndSumsBeyondInt32AreRefused) {
  const std::vector<std::vector<int64_t>> bad{{}, {0}, {3, -1}, {INT64_C(1) << 31}, {INT32_MAX, 1}};
  for (const auto& lengths : bad) EXPECT_THROW(Documents::from_lengths(lengths), ShapeError);
  const std::vector<int64_t> largest{INT32_MAX - 1, 1};
  EXPECT_EQ(Documents::from_lengths(largest).tokens(), INT32_MAX);
}

TEST(Documents, ASlotRatioBelowTwoIsRefused) {
  const std::vector<int64_t> lengths{4};
  const auto docs = Documents::from_lengths(lengths);
  for (const int64_t ratio : {1, 0, -4}) EXPECT_THROW((void)docs.cu_slots(ratio), ShapeError);
}

}  // namespace
}  // namespace lethe
