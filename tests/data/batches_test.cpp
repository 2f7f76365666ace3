#include "lethe/data/batches.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"

namespace lethe {
namespace {

// Byte i of the text is i mod 251, so that a value tells its place.
Corpus corpus_of(const std::vector<int64_t>& lengths) {
  ByteText text;
  for (const int64_t n : lengths) {
    const auto begin = static_cast<int64_t>(text.bytes.size());
    for (int64_t i = 0; i < n; ++i)
      text.bytes.push_back(static_cast<uint8_t>(text.bytes.size() % 251));
    text.documents.push_back({begin, begin + n});
  }
  return Corpus(std::move(text));
}

TokenRange whole(const Corpus& corpus) {
  return {0, corpus.num_tokens()};
}

Batch sequence(const Sequences& sequences, int64_t index) {
  Batch batch;
  sequences.append_to(batch, index, kByteVocab);
  return batch;
}

TEST(Sequences, ALongDocumentGivesWindowsThatShareOneByte) {
  const Corpus corpus = corpus_of({13});
  const Sequences sequences(corpus, whole(corpus), 4);
  ASSERT_EQ(sequences.num_windows(), 3);
  EXPECT_EQ(sequences.num_packed(), 0);
  EXPECT_EQ(sequence(sequences, 0), (Batch{{0, 1, 2, 3}, {1, 2, 3, 4}, {0, 4}}));
  EXPECT_EQ(sequence(sequences, 2), (Batch{{8, 9, 10, 11}, {9, 10, 11, 12}, {0, 4}}));
  EXPECT_EQ(sequences.unused_tokens(), 1);  // byte 12 is only a label
}

TEST(Sequences, ShortDocumentsShareASequenceWithBoundaries) {
  const Corpus corpus = corpus_of({3, 2, 4, 1, 3});
  const Sequences sequences(corpus, whole(corpus), 6);
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
  const Corpus corpus = corpus_of({7, 6});
  const Sequences sequences(corpus, whole(corpus), 4);
  ASSERT_EQ(sequences.num_windows(), 2);
  ASSERT_EQ(sequences.num_packed(), 1);
  EXPECT_EQ(sequence(sequences, 2), (Batch{{4, 5, 6, 11}, {5, 6, kIgnoredLabel, 12}, {0, 3, 4}}));
  EXPECT_EQ(sequences.unused_tokens(), 1);
}

// Every sequence has full length and valid boundaries, every label is its document's next byte, and
// the count of unused tokens balances.
void expect_consistent(const Corpus& corpus, int64_t seq_length) {
  const Sequences sequences(corpus, whole(corpus), seq_length);
  std::set<int64_t> ends;
  for (int64_t d = 0; d < corpus.num_documents(); ++d) ends.insert(corpus.document(d).end);
  std::vector<int> used(static_cast<size_t>(corpus.num_tokens()));
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
      expect_consistent(corpus_of(lengths), seq_length);
      ++cases;
    }
  EXPECT_EQ(cases, 35);
}

TEST(Sequences, TextThatFillsNoSequenceIsADataError) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{3}, {1, 1, 1, 1, 1}, {2, 1, 1}}) {
    const Corpus corpus = corpus_of(lengths);
    EXPECT_THROW(Sequences(corpus, whole(corpus), 4), DataError);
  }
}

TEST(Sequences, IdsOutsideTheVocabularyNameTheirPlace) {
  ByteText text;
  text.bytes = {1, 2, 3, 4, 5, 6, 7, 200};
  text.documents = {{0, 5}, {5, 8}};
  text.names = {"a.txt", "b.txt"};
  const Corpus corpus(std::move(text), "folder");
  const Sequences sequences(corpus, whole(corpus), 8);
  Batch batch;
  test::expect_error<DataError>(
      [&] { sequences.append_to(batch, 0, 200); },
      {"folder: document 1 (b.txt), token 2", "[0, 200)", "got 200", "at least 201"});
}

}  // namespace
}  // namespace lethe
