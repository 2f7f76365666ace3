#include "lethe/data/batches.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"

namespace lethe {
namespace {

using Ids = std::vector<int64_t>;
using Starts = std::vector<int32_t>;

// Byte i of the text is i mod 251, so that a value tells its place.
ByteText text_of(const std::vector<int64_t>& lengths) {
  ByteText text;
  for (const int64_t n : lengths) {
    const auto begin = static_cast<int64_t>(text.bytes.size());
    for (int64_t i = 0; i < n; ++i)
      text.bytes.push_back(static_cast<uint8_t>(text.bytes.size() % 251));
    text.documents.push_back({begin, begin + n});
  }
  return text;
}

Batch sequence(const Sequences& sequences, int64_t index) {
  Batch batch;
  sequences.append_to(batch, index);
  return batch;
}

TEST(Sequences, ALongDocumentGivesWindowsThatShareOneByte) {
  const ByteText text = text_of({13});
  const Sequences sequences(text, text.documents, 4);
  ASSERT_EQ(sequences.num_windows(), 3);
  EXPECT_EQ(sequences.num_packed(), 0);
  EXPECT_EQ(sequence(sequences, 0), (Batch{{0, 1, 2, 3}, {1, 2, 3, 4}, {0, 4}}));
  EXPECT_EQ(sequence(sequences, 2), (Batch{{8, 9, 10, 11}, {9, 10, 11, 12}, {0, 4}}));
  EXPECT_EQ(sequences.unused_tokens(), 1);  // byte 12 is only a label
}

TEST(Sequences, ShortDocumentsShareASequenceWithBoundaries) {
  const ByteText text = text_of({3, 2, 4, 1, 3});
  const Sequences sequences(text, text.documents, 6);
  ASSERT_EQ(sequences.num_packed(), 2);
  EXPECT_EQ(sequence(sequences, 0),
            (Batch{{0, 1, 2, 3, 4, 5}, {1, 2, kIgnoredLabel, 4, kIgnoredLabel, 6}, {0, 3, 5, 6}}));
  // The document [5, 9) goes on; the single byte 9 has no successor.
  EXPECT_EQ(
      sequence(sequences, 1),
      (Batch{{6, 7, 8, 10, 11, 12}, {7, 8, kIgnoredLabel, 11, 12, kIgnoredLabel}, {0, 3, 6}}));
  EXPECT_EQ(sequences.unused_tokens(), 1);
}

TEST(Sequences, EndsOfLongDocumentsArePackedToo) {
  const ByteText text = text_of({7, 6});
  const Sequences sequences(text, text.documents, 4);
  ASSERT_EQ(sequences.num_windows(), 2);
  ASSERT_EQ(sequences.num_packed(), 1);
  EXPECT_EQ(sequence(sequences, 2), (Batch{{4, 5, 6, 11}, {5, 6, kIgnoredLabel, 12}, {0, 3, 4}}));
  EXPECT_EQ(sequences.unused_tokens(), 1);
}

// Every sequence has full length and valid boundaries, every label is its document's next byte, and
// the count of unused tokens balances.
void expect_consistent(const ByteText& text, int64_t seq_length) {
  const Sequences sequences(text, text.documents, seq_length);
  std::set<int64_t> ends;
  for (const TextRange& d : text.documents) ends.insert(d.end);
  std::vector<int> used(text.bytes.size());
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const Batch batch = sequence(sequences, s);
    ASSERT_EQ(batch.tokens(), seq_length);
    ASSERT_EQ(batch.labels.size(), batch.ids.size());
    const Documents documents(batch.cu_seqlens);
    ASSERT_EQ(documents.tokens(), seq_length);
    for (int64_t d = 0; d < documents.count(); ++d)
      for (int64_t i = documents.begin(d); i < documents.end(d); ++i) {
        const int64_t id = batch.ids[static_cast<size_t>(i)];
        ++used[static_cast<size_t>(id)];
        const int64_t label = batch.labels[static_cast<size_t>(i)];
        ASSERT_EQ(label, ends.contains(id + 1) ? kIgnoredLabel : id + 1);
        if (label != kIgnoredLabel && i + 1 < documents.end(d)) {
          ASSERT_EQ(batch.ids[static_cast<size_t>(i) + 1], label);
        }
      }
  }
  EXPECT_LE(*std::max_element(used.begin(), used.end()), 1);
  EXPECT_EQ(std::count(used.begin(), used.end(), 0), sequences.unused_tokens());
}

TEST(Sequences, AreConsistentForManyMixesOfLengths) {
  const std::vector<std::vector<int64_t>> mixes = {
      {200}, {1, 1, 2, 5, 9}, {17, 16, 15, 1, 33}, {2, 2, 2, 2, 2, 2}, {64, 1, 1, 65, 3}};
  int cases = 0;
  for (const auto& lengths : mixes)
    for (const int64_t seq_length : {1, 2, 3, 4, 7, 8, 9}) {
      SCOPED_TRACE(fmt::format("mix of {} documents, sequences of {}", lengths.size(), seq_length));
      expect_consistent(text_of(lengths), seq_length);
      ++cases;
    }
  EXPECT_EQ(cases, 35);
}

TEST(Sequences, TextThatFillsNoSequenceIsADataError) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{3}, {1, 1, 1, 1, 1}, {2, 1, 1}}) {
    const ByteText text = text_of(lengths);
    EXPECT_THROW(Sequences(text, text.documents, 4), DataError);
  }
}

TEST(ShuffledBatches, AnEpochVisitsEverySequenceOnceInAShuffledOrder) {
  const ByteText text = text_of({121});
  ShuffledBatches batches(Sequences(text, text.documents, 4), 5, 42);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Ids firsts;
    for (int64_t step = 0; step < 6; ++step) {
      const Batch batch = batches.at(epoch * 6 + step);
      ASSERT_EQ(batch.cu_seqlens, (Starts{0, 4, 8, 12, 16, 20}));
      for (size_t i = 0; i < 20; i += 4) firsts.push_back(batch.ids[i]);
    }
    EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end()));
    std::sort(firsts.begin(), firsts.end());
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(firsts[i], static_cast<int64_t>(4 * i));
  }
  EXPECT_NE(batches.at(0).ids, batches.at(6).ids);  // the next epoch has another order
}

TEST(ShuffledBatches, ABatchMayHoldTheEndOfAnEpochAndTheNextBeginning) {
  const ByteText text = text_of({13});
  ShuffledBatches batches(Sequences(text, text.documents, 4), 2, 1);
  std::multiset<int64_t> firsts;
  for (int64_t step = 0; step < 3; ++step)
    for (const size_t i : {0u, 4u}) firsts.insert(batches.at(step).ids[i]);
  EXPECT_EQ(firsts, (std::multiset<int64_t>{0, 0, 4, 4, 8, 8}));
}

TEST(ShuffledBatches, AreAPureFunctionOfSeedAndStep) {
  const ByteText text = text_of({200});
  const auto make = [&](uint64_t seed) {
    return ShuffledBatches(Sequences(text, text.documents, 4), 3, seed);
  };
  ShuffledBatches forward = make(7), resumed = make(7), other = make(8);
  std::vector<Batch> all;
  for (int64_t step = 0; step < 60; ++step) all.push_back(forward.at(step));
  for (const int64_t step : {59, 3, 20, 20, 0})
    EXPECT_EQ(resumed.at(step), all[static_cast<size_t>(step)]) << step;
  EXPECT_NE(other.at(0), all[0]);
}

TEST(ShuffledBatches, BatchSizesOutsideTheRangeAreRefused) {
  const ByteText text = text_of({200});
  const Sequences sequences(text, text.documents, 4);
  EXPECT_THROW(ShuffledBatches(sequences, 0, 1), ConfigError);
  EXPECT_THROW(ShuffledBatches(sequences, int64_t{1} << 30, 1), ConfigError);
}

TEST(FixedBatches, AreTheFirstSequencesInOrder) {
  const ByteText text = text_of({41});
  const Sequences sequences(text, text.documents, 4);
  const std::vector<Batch> batches = fixed_batches(sequences, 2, 5);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].ids, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batches[2].ids, (Ids{16, 17, 18, 19}));
  EXPECT_EQ(batches[2].cu_seqlens, (Starts{0, 4}));
  EXPECT_EQ(fixed_batches(sequences, 4, 1000).size(), 3u);  // all 10
  EXPECT_THROW(fixed_batches(sequences, 2, 0), ConfigError);
}

}  // namespace
}  // namespace lethe
