#include "lethe/data/byte_text.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/data/bigram.h"
#include "lethe/data/split.h"

namespace lethe {
namespace {

std::string as_string(const ByteText& text, const TokenRange& range) {
  return {text.bytes.begin() + range.begin, text.bytes.begin() + range.end};
}

TEST(LoadText, AFileIsOneDocumentOfItsBytes) {
  const test::TempFolder folder;
  folder.write("a.txt", std::string("\xff\x00z\n", 4));
  const ByteText text = load_text(folder.path() / "a.txt");
  EXPECT_EQ(text.bytes, (std::vector<uint8_t>{255, 0, 'z', '\n'}));
  EXPECT_EQ(text.documents, (std::vector<TokenRange>{{0, 4}}));
  EXPECT_EQ(text.names, std::vector<std::string>{"a.txt"});
}

TEST(LoadText, AFolderGivesItsFilesInTheOrderOfTheirPaths) {
  const test::TempFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "a.txt", "a/b/c", "B.txt"}) folder.write(name, name);
  const ByteText text = load_text(folder.path());
  EXPECT_EQ(text.names, (std::vector<std::string>{"B.txt", "a.txt", "a/b/c", "a/z.txt", "b.txt"}));
  ASSERT_EQ(text.documents.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(as_string(text, text.documents[i]), text.names[i]);
  EXPECT_EQ(text.documents.back().end, static_cast<int64_t>(text.bytes.size()));
}

TEST(LoadText, HiddenAndEmptyFilesAreCountedNotRead) {
  const test::TempFolder folder;
  for (const char* name : {".git/config", ".hidden", "sub/.also", "seen"}) folder.write(name, "x");
  folder.write("empty", "");
  const ByteText text = load_text(folder.path());
  EXPECT_EQ(text.names, std::vector<std::string>{"seen"});
  EXPECT_EQ(text.hidden_skipped, 3);  // .git as one
  EXPECT_EQ(text.empty_files, 1);
}

TEST(LoadText, AHiddenFolderNamedByTheUserIsRead) {
  const test::TempFolder folder;
  folder.write(".corpus/a", "x");
  EXPECT_EQ(load_text(folder.path() / ".corpus").bytes.size(), 1u);
}

TEST(LoadText, NothingToReadIsADataErrorThatNamesThePath) {
  const test::TempFolder folder;
  folder.write("empty", "");
  for (const auto& path : {folder.path() / "absent", folder.path() / "empty", folder.path()}) {
    try {
      load_text(path);
      ADD_FAILURE() << "no error for " << path;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
}

Corpus corpus_of(std::string_view bytes, std::vector<TokenRange> documents) {
  ByteText text;
  text.bytes.assign(bytes.begin(), bytes.end());
  text.documents = std::move(documents);
  return Corpus(std::move(text));
}

double entropy_of(const Corpus& corpus) {
  return bigram_entropy(corpus, {0, corpus.num_tokens()});
}

TEST(Bigram, ACycleHasNoEntropyAndAFairChoiceHasLnTwo) {
  EXPECT_EQ(entropy_of(corpus_of("abcabcabcabc", {{0, 12}})), 0);
  // a and b after each half of the x, x after all others
  EXPECT_NEAR(entropy_of(corpus_of("xaxbxaxbx", {{0, 9}})), std::log(2.0) / 2, 1e-15);
}

TEST(Bigram, PairsDoNotCrossDocuments) {
  // a -> b twice, a -> c once, b -> a twice; "aa" at the boundary is no pair.
  EXPECT_NEAR(entropy_of(corpus_of("ababaac", {{0, 5}, {5, 7}})),
              -(2 * std::log(2.0 / 3) + std::log(1.0 / 3)) / 5,
              1e-15);
  EXPECT_THROW(entropy_of(corpus_of("a", {{0, 1}})), DataError);
}

TEST(Bigram, LongDocumentsAreCountedAcrossTheBlocksOfReading) {
  std::string cycle(200'001, 'a');
  for (size_t i = 1; i < cycle.size(); i += 2) cycle[i] = 'b';
  EXPECT_EQ(entropy_of(corpus_of(cycle, {{0, 200'001}})), 0);
}

TEST(Bigram, TheTrainingPartOfTheExampleTextHasTheKnownEntropy) {
  const Corpus corpus = Corpus::open(LETHE_SOURCE_DIR "/examples/data/shakespeare.txt");
  EXPECT_NEAR(bigram_entropy(corpus, split_corpus(corpus, 0.1, 256).train), 2.49, 0.005);
}

}  // namespace
}  // namespace lethe
