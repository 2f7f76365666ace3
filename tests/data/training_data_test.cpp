#include "lethe/data/training_data.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/data/dataset_card.h"
#include "lethe/data/indexed_writer.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"

namespace lethe {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;

uint32_t checksum(const Batch& batch, uint32_t crc) {
  crc = crc32c(std::as_bytes(std::span(batch.ids)), crc);
  crc = crc32c(std::as_bytes(std::span(batch.labels)), crc);
  return crc32c(std::as_bytes(std::span(batch.cu_seqlens)), crc);
}

// The losses that the documentation quotes were made with these very batches.
TEST(TrainingData, TheBatchesOfTheExampleTextAreThoseOfEarlierVersions) {
  TrainingData data({.parts = {{LETHE_SOURCE_DIR "/examples/data/shakespeare.txt"}},
                     .valid_fraction = 0.1,
                     .seq_length = 256,
                     .sequences_per_batch = 4,
                     .valid_batches = 20,
                     .seed = 1234,
                     .vocab_size = 256});
  EXPECT_EQ(data.facts().sequences, 6830);
  EXPECT_EQ(data.facts().dropped_tokens, 164);
  EXPECT_EQ(data.facts().unit, "byte");
  ASSERT_TRUE(data.facts().bigram_loss.has_value());
  EXPECT_NEAR(*data.facts().bigram_loss, 2.49, 0.005);
  uint32_t train = 0, valid = 0;
  for (int step = 0; step < 3000; ++step) train = checksum(data.next(), train);
  for (const Batch& batch : data.valid_batches()) valid = checksum(batch, valid);
  EXPECT_EQ(train, 0x8e2de528u);
  EXPECT_EQ(valid, 0x43817128u);
}

class Training : public testing::Test {
 protected:
  // Text of `count` bytes whose byte i is (first + i) mod 251.
  std::string text(const std::string& name, size_t count, size_t first = 0) const {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes += static_cast<char>((first + i) % 251);
    folder_.write(name, bytes);
    return path(name);
  }

  struct Document {
    Ids prompt, answer;
  };

  std::string pair(const std::string& name,
                   const std::vector<Document>& documents,
                   bool with_mask = false) const {
    IndexedWriter writer({.name = path(name), .dtype = TokenDtype::U16, .with_mask = with_mask});
    for (const Document& document : documents) {
      writer.append(document.prompt, false);
      writer.append(document.answer);
      writer.end_document();
    }
    for (const auto& rename : writer.finish(with_mask)) rename_durably(rename.from, rename.to);
    return path(name);
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  [[nodiscard]] static DataSettings settings(std::vector<DataPart> parts, int64_t batch = 2) {
    return {.parts = std::move(parts),
            .seq_length = 4,
            .sequences_per_batch = batch,
            .seed = 7,
            .vocab_size = 300};
  }

  test::TempFolder folder_;
};

TEST_F(Training, AnEpochVisitsEverySequenceOnceInAShuffledOrder) {
  TrainingData data(settings({{text("a", 121)}}, 5));
  std::vector<Batch> firsts_of_epoch;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> firsts;
    for (int step = 0; step < 6; ++step) {
      const Batch batch = data.next();
      if (step == 0) firsts_of_epoch.push_back(batch);
      ASSERT_EQ(batch.cu_seqlens, (std::vector<int32_t>{0, 4, 8, 12, 16, 20}));
      for (size_t i = 0; i < 20; i += 4) firsts.push_back(batch.ids[i]);
    }
    EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end()));
    std::sort(firsts.begin(), firsts.end());
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(firsts[i], static_cast<int64_t>(4 * i));
  }
  EXPECT_NE(firsts_of_epoch[0], firsts_of_epoch[1]);
}

TEST_F(Training, ABatchMayHoldTheEndOfAnEpochAndTheNextBeginning) {
  TrainingData data(settings({{text("a", 13)}}));
  std::multiset<int64_t> firsts;
  for (int step = 0; step < 3; ++step) {
    const Batch batch = data.next();
    for (const size_t i : {0u, 4u}) firsts.insert(batch.ids[i]);
  }
  EXPECT_EQ(firsts, (std::multiset<int64_t>{0, 0, 4, 4, 8, 8}));
}

TEST_F(Training, TokenFilesGiveTheBatchesOfTheSameTextInMemory) {
  text("text/a", 50);
  text("text/b", 3, 100);
  text("text/c", 17, 60);
  std::vector<Document> documents;
  for (const auto& [count, first] : {std::pair(50, 0), {3, 100}, {17, 60}}) {
    documents.push_back({});
    for (int i = 0; i < count; ++i) documents.back().answer.push_back((first + i) % 251);
  }
  auto from_text = settings({{path("text")}}), from_pair = settings({{pair("tokens", documents)}});
  for (auto* s : {&from_text, &from_pair}) {
    s->valid_fraction = 0.25;
    s->valid_batches = 9;
  }
  TrainingData a(from_text), b(from_pair);
  for (int step = 0; step < 40; ++step) ASSERT_EQ(a.next(), b.next()) << step;
  EXPECT_EQ(a.valid_batches(), b.valid_batches());
  EXPECT_FALSE(a.valid_batches().empty());
  EXPECT_EQ(b.facts().unit, "token");
  EXPECT_FALSE(b.facts().bigram_loss.has_value());
}

TEST_F(Training, AMaskedTokenIsNoLabelButAnInput) {
  const std::string name = pair("sft", {{{10, 11}, {12, 13}}, {{20}, {21}}, {{30}, {31}}}, true);
  auto s = settings({{name}}, 1);
  s.seq_length = 6;
  TrainingData data(s);
  EXPECT_EQ(data.next(),
            (Batch{{10, 11, 12, 13, 20, 21},
                   {kIgnoredLabel, 12, 13, kIgnoredLabel, 21, kIgnoredLabel},
                   {0, 4, 6}}));
}

// A row border cuts the second document: its first piece keeps its labels, what goes on has none.
TEST_F(Training, WhatGoesOnOfACutDocumentWithAMaskHasNoLabels) {
  const std::vector<Document> documents{{{10, 11}, {12}}, {{20}, {21, 22, 23}}, {{30}, {31, 32}}};
  const auto labels = [&](bool with_mask) {
    auto s = settings({{pair(with_mask ? "sft" : "plain", documents, with_mask)}}, 1);
    s.seq_length = 5;
    TrainingData data(s);
    std::multiset<std::vector<int64_t>> rows{data.next().labels, data.next().labels};
    return rows;
  };
  constexpr int64_t kNone = kIgnoredLabel;
  EXPECT_EQ(labels(true),
            (std::multiset<std::vector<int64_t>>{{kNone, 12, kNone, 21, 22},
                                                 {kNone, kNone, 31, 32, kNone}}));
  EXPECT_EQ(
      labels(false),
      (std::multiset<std::vector<int64_t>>{{11, 12, kNone, 21, 22}, {23, kNone, 31, 32, kNone}}));
}

TEST_F(Training, DataOfWhichNoTokenCountsIsRefused) {
  const std::string name = pair("sft", {{{1, 2, 3, 4, 5}, {}}}, true);
  EXPECT_EQ(TrainingData(settings({{name}})).facts().sequences, 1);  // unknown without its card
  DatasetCard card{.tokenizer = "bytes",
                   .tokenizer_fingerprint = "bytes",
                   .vocab_size = 256,
                   .documents = 1,
                   .tokens = 5,
                   .masked_tokens = 5,
                   .largest_id = 5};
  folder_.write("sft.json", card.to_json());
  expect_error<DataError>([&] { TrainingData{settings({{name}})}; },
                          {"sft.json", "5 of 5 masked", "--no-mask-prompts"});
  card.masked_tokens = 4;
  folder_.write("sft.json", card.to_json());
  // Of a byte data set with a mask, the loss of byte pairs would be of other tokens.
  EXPECT_FALSE(TrainingData(settings({{name}})).facts().bigram_loss.has_value());
}

TEST_F(Training, ThePathsThatTheSystemRefusesAreDataErrors) {
  EXPECT_THROW(TrainingData{settings({{path(std::string(300, 'n'))}})}, DataError);
  std::filesystem::create_symlink(path("loop.idx"), path("loop.idx"));
  expect_error<DataError>([&] { TrainingData{settings({{path("loop")}})}; },
                          {"loop.idx", "cannot look at the path"});
}

TEST_F(Training, LongDocumentsOfMaskedDataAreAnErrorUnlessAskedFor) {
  const std::string name = pair("sft", {{{1}, {2, 3}}, {{1, 2}, {3, 4, 5, 6}}}, true);
  expect_error<DataError>([&] { TrainingData{settings({{name}})}; },
                          {"sft: document 1",
                           "sequence of 4 tokens and a last label",
                           "got 6",
                           "prompt",
                           "--long-documents split"});
  auto s = settings({{name}});
  s.long_documents = LongDocuments::Split;
  EXPECT_EQ(TrainingData(s).facts().sequences, 2);
  s = settings({{text("a", 6)}});
  s.long_documents = LongDocuments::Error;
  expect_error<DataError>([&] { TrainingData{s}; }, {"document 0", "got 6"});
  s.parts = {{text("b", 5)}};
  EXPECT_EQ(TrainingData(s).facts().sequences, 1);
}

TEST_F(Training, PartsAreBlendedByWeightWithoutEverLagging) {
  const std::string big = text("big", 1001), small = text("small", 41, 200);
  TrainingData data(settings({{big, 3}, {small, 1}}, 1));
  int64_t from_big = 0;
  for (int64_t n = 1; n <= 400; ++n) {
    data.next();
    const DataPosition position = data.position();
    from_big = position.parts[0].next_sample;
    EXPECT_EQ(position.next_sample, n);
    EXPECT_LE(std::abs(4 * from_big - 3 * n), 4) << n;
  }
  EXPECT_EQ(from_big, 300);
}

TEST_F(Training, PartsAreShuffledDifferently) {
  const std::string one = text("one", 81), two = text("two", 81);
  TrainingData data(settings({{one}, {two}}, 1));
  std::vector<std::vector<int64_t>> firsts(2);
  for (size_t n = 0; n < 40; ++n) {
    const int64_t before = data.position().parts[0].next_sample;
    const Batch batch = data.next();
    firsts[data.position().parts[0].next_sample > before ? 0 : 1].push_back(batch.ids[0]);
  }
  EXPECT_EQ(firsts[0].size(), 20u);
  EXPECT_NE(firsts[0], firsts[1]);
  for (auto& list : firsts) std::sort(list.begin(), list.end());
  EXPECT_EQ(firsts[0], firsts[1]);
}

TEST_F(Training, ARestoredStreamGoesOnAsTheUndisturbedOne) {
  const auto s = settings({{text("a", 103), 0.3}, {text("b", 57, 9), 0.7}}, 3);
  TrainingData whole(s);
  for (int step = 0; step < 60; ++step) {
    TrainingData resumed(s);
    resumed.next();
    resumed.restore(DataPosition::from_json(whole.position().to_json()));
    EXPECT_EQ(resumed.position(), whole.position());
    TrainingData again(s);
    again.restore(whole.position());
    const Batch expected = whole.next();
    ASSERT_EQ(resumed.next(), expected) << step;
    ASSERT_EQ(again.next(), expected) << step;
  }
}

TEST_F(Training, ABatchSizeOfAnotherKindReadsTheSameSamples) {
  const auto s = settings({{text("a", 103)}}, 2);
  auto wide = s;
  wide.sequences_per_batch = 6;
  TrainingData narrow(s), all(wide);
  std::vector<int64_t> ids;
  for (int i = 0; i < 3; ++i) {
    const Batch batch = narrow.next();
    ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
  }
  EXPECT_EQ(all.next().ids, ids);
  EXPECT_EQ(all.position(), narrow.position());
}

TEST_F(Training, RestoringNamesEverythingThatDiffers) {
  auto s = settings({{text("a", 103)}, {text("b", 57)}});
  TrainingData before(s);
  before.next();
  const DataPosition position = before.position();
  text("b", 57, 1);
  s.seed = 8;
  s.seq_length = 5;
  s.parts[0].weight = 2;
  TrainingData after(s);
  const DataPosition untouched = after.position();
  expect_error<CheckpointError>([&] { after.restore(position); },
                                {"seed was 7, is 8",
                                 "sequence length was 4, is 5",
                                 "weight of",
                                 "was 1, is 2",
                                 "content of"});
  EXPECT_EQ(after.position(), untouched);
  s = settings({{text("a", 103)}});
  s.valid_fraction = 0.5;
  s.valid_batches = 1;
  TrainingData fewer(s);
  expect_error<CheckpointError>([&] { fewer.restore(position); },
                                {"valid-fraction was 0, is 0.5", "number of parts was 2, is 1"});
}

TEST_F(Training, AMovedFileIsTheSameData) {
  TrainingData before(settings({{text("a", 103)}}));
  before.next();
  TrainingData after(settings({{text("elsewhere/b", 103)}}));
  after.restore(before.position());
  EXPECT_EQ(after.next(), before.next());
}

TEST_F(Training, AnIdOutsideTheVocabularyNamesFileDocumentAndPosition) {
  const std::string name = pair("data", {{{}, {1, 2}}, {{}, {3, 300, 5}}});
  auto s = settings({{name}}, 1);
  TrainingData data(s);
  expect_error<DataError>([&] { data.next(); },
                          {"data: document 1, token 1", "[0, 300)", "got 300", "at least 301"});
  s.vocab_size = 301;
  EXPECT_EQ(TrainingData(s).next().tokens(), 4);
}

TEST_F(Training, ByteTokensNeedAVocabularyOfAllBytes) {
  auto s = settings({{text("a", 103)}});
  s.vocab_size = 255;
  expect_error<ConfigError>([&] { TrainingData{s}; }, {"--vocab-size", "256 rows, got 255"});
}

TEST_F(Training, TextAndTokensOfUnknownOriginAreNotBlended) {
  const std::string name = pair("data", {{{}, {1, 2, 3, 4, 5}}});
  expect_error<DataError>(
      [&] {
        TrainingData{settings({{text("a", 103)}, {name}})};
      },
      {"one tokenizer", "'bytes'", "'unknown'"});
}

TEST_F(Training, SettingsOutsideTheirRangesAreRefused) {
  const std::string a = text("a", 200);
  EXPECT_THROW(TrainingData{settings({})}, ConfigError);
  EXPECT_THROW(TrainingData{settings({{a, 0}})}, ConfigError);
  EXPECT_THROW(TrainingData{settings({{a, -1}})}, ConfigError);
  EXPECT_THROW(TrainingData{settings({{a}}, 0)}, ConfigError);
  EXPECT_THROW(TrainingData{settings({{a}}, int64_t{1} << 30)}, ConfigError);
  auto s = settings({{a}});
  s.seq_length = 0;
  EXPECT_THROW(TrainingData{s}, ConfigError);
  s = settings({{a}});
  s.valid_fraction = 0.5;
  expect_error<ConfigError>([&] { TrainingData{s}; }, {"validation batches", "got 0"});
}

TEST_F(Training, TheValidationSetIsTheFirstSequencesInOrderBlendedUntilTheyEnd) {
  auto s = settings({{text("a", 82)}});
  s.valid_fraction = 0.5;
  s.valid_batches = 3;
  const TrainingData data(s);
  ASSERT_EQ(data.valid_batches().size(), 3u);
  EXPECT_EQ(data.valid_batches()[0].ids, (std::vector<int64_t>{41, 42, 43, 44, 45, 46, 47, 48}));
  s.valid_batches = 1000;
  EXPECT_EQ(TrainingData(s).valid_batches().size(), 5u);  // all 10
  s.sequences_per_batch = 4;
  EXPECT_EQ(TrainingData(s).valid_batches().back().tokens(), 8);
  s.parts.push_back({text("b", 20), 5});
  int64_t tokens = 0;
  const TrainingData blended(s);
  for (const Batch& batch : blended.valid_batches()) tokens += batch.tokens();
  EXPECT_EQ(tokens, 4 * (10 + 2));
}

TEST(DataPosition, IsTheSameAfterJson) {
  const DataPosition position{.seed = ~uint64_t{0},
                              .seq_length = 4096,
                              .valid_fraction = 0.1,
                              .next_sample = int64_t{1} << 60,
                              .parts = {{"a", "f", 1.0 / 3, 5, int64_t{1} << 60}}};
  EXPECT_EQ(DataPosition::from_json(position.to_json()), position);
}

TEST(DataPosition, NonsenseIsACheckpointErrorThatNamesTheField) {
  const std::string good = DataPosition{.seq_length = 4, .parts = {{"a", "f", 1, 5, 0}}}.to_json();
  EXPECT_NO_THROW(DataPosition::from_json(good));
  const auto expect_bad = [&](const std::string& from, const std::string& to, const char* name) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    expect_error<CheckpointError>([&] { DataPosition::from_json(text); }, {"data position", name});
  };
  expect_bad("\"version\":1", "\"version\":2", "version must be 1, got 2");
  expect_bad("\"seed\":0", "\"seed\":-1", "'seed'");
  expect_bad("\"seed\":0", "\"sead\":0", "'seed'");
  expect_bad("\"seq_length\":4", "\"seq_length\":0", "'seq_length'");
  expect_bad("\"seq_length\":4", "\"seq_length\":\"4\"", "'seq_length'");
  expect_bad("\"next_sample\":0", "\"next_sample\":3", "sum of the parts'");
  expect_bad("\"weight\":1.0", "\"weight\":0", "weight");
  expect_bad("\"fingerprint\":\"f\"", "\"fingerprint\":5", "'fingerprint'");
  expect_bad("\"sequences\":5", "\"sequences\":0", "'sequences'");
  for (const char* text : {"", "[]", "{", "{\"version\":true}"})
    EXPECT_THROW(DataPosition::from_json(text), CheckpointError) << text;
}

}  // namespace
}  // namespace lethe
