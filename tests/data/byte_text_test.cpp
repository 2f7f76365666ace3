#include "lethe/data/byte_text.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/data/bigram.h"
#include "lethe/data/split.h"

namespace lethe {
namespace {

std::string as_string(const ByteText& text, const TextRange& range) {
  return {text.bytes.begin() + range.begin, text.bytes.begin() + range.end};
}

TEST(LoadText, AFileIsOneDocumentOfItsBytes) {
  const test::TemporaryFolder folder;
  folder.write("a.txt", std::string("\xff\x00z\n", 4));
  const ByteText text = load_text(folder.path() / "a.txt");
  EXPECT_EQ(text.bytes, (std::vector<uint8_t>{255, 0, 'z', '\n'}));
  EXPECT_EQ(text.documents, (std::vector<TextRange>{{0, 4}}));
  EXPECT_EQ(text.names, std::vector<std::string>{"a.txt"});
}

TEST(LoadText, AFolderGivesItsFilesInTheOrderOfTheirPaths) {
  const test::TemporaryFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "a.txt", "a/b/c", "B.txt"}) folder.write(name, name);
  const ByteText text = load_text(folder.path());
  EXPECT_EQ(text.names, (std::vector<std::string>{"B.txt", "a.txt", "a/b/c", "a/z.txt", "b.txt"}));
  ASSERT_EQ(text.documents.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(as_string(text, text.documents[i]), text.names[i]);
  EXPECT_EQ(total_size(text.documents), static_cast<int64_t>(text.bytes.size()));
}

TEST(LoadText, HiddenAndEmptyFilesAreCountedNotRead) {
  const test::TemporaryFolder folder;
  for (const char* name : {".git/config", ".hidden", "sub/.also", "seen"}) folder.write(name, "x");
  folder.write("empty", "");
  const ByteText text = load_text(folder.path());
  EXPECT_EQ(text.names, std::vector<std::string>{"seen"});
  EXPECT_EQ(text.hidden_skipped, 3);  // .git as one
  EXPECT_EQ(text.empty_files, 1);
}

TEST(LoadText, AHiddenFolderNamedByTheUserIsRead) {
  const test::TemporaryFolder folder;
  folder.write(".corpus/a", "x");
  EXPECT_EQ(load_text(folder.path() / ".corpus").bytes.size(), 1u);
}

TEST(LoadText, NothingToReadIsADataErrorThatNamesThePath) {
  const test::TemporaryFolder folder;
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

TEST(Bigram, ACycleHasNoEntropyAndAFairChoiceHasLnTwo) {
  ByteText text;
  for (const char c : std::string("abcabcabcabc")) text.bytes.push_back(static_cast<uint8_t>(c));
  text.documents = {{0, 12}};
  EXPECT_EQ(bigram_entropy(text, text.documents), 0);
  const std::string fair = "xaxbxaxbx";  // a and b after each half of the x, x after all others
  text.bytes.assign(fair.begin(), fair.end());
  text.documents = {{0, 9}};
  EXPECT_NEAR(bigram_entropy(text, text.documents), std::log(2.0) / 2, 1e-15);
}

TEST(Bigram, PairsDoNotCrossDocuments) {
  const std::string s = "ababa";
  ByteText text;
  text.bytes.assign(s.begin(), s.end());
  text.bytes.insert(text.bytes.end(), {'a', 'c'});
  text.documents = {{0, 5}, {5, 7}};
  // a -> b twice, a -> c once, b -> a twice; "aa" at the boundary is no pair.
  EXPECT_NEAR(bigram_entropy(text, text.documents),
              -(2 * std::log(2.0 / 3) + std::log(1.0 / 3)) / 5,
              1e-15);
  const std::vector<TextRange> single = {{0, 1}};
  EXPECT_THROW(bigram_entropy(text, single), DataError);
}

TEST(Bigram, TheTrainingPartOfTheExampleTextHasTheKnownEntropy) {
  const ByteText text = load_text(LETHE_SOURCE_DIR "/examples/data/shakespeare.txt");
  const TextSplit split = split_text(text, 0.1, 256);
  EXPECT_NEAR(bigram_entropy(text, split.train), 2.49, 0.005);
}

}  // namespace
}  // namespace lethe
