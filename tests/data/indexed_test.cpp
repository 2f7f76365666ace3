#include <cstring>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/data/indexed_file.h"
#include "lethe/data/indexed_writer.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths = {3, 0, 2};
  std::vector<int64_t> pointers = {0, 6, 6};
  std::vector<int64_t> documents = {0, 2, 3};
  int64_t more_sequences = 0;  // than there are
  int64_t more_documents = 0;
  std::string modes;

  [[nodiscard]] std::string bytes() const {
    std::string out = magic;
    put(out, version);
    put(out, code);
    put(out, static_cast<uint64_t>(std::ssize(lengths) + more_sequences));
    put(out, static_cast<uint64_t>(std::ssize(documents) + more_documents));
    for (const int32_t n : lengths) put(out, n);
    for (const int64_t n : pointers) put(out, n);
    for (const int64_t n : documents) put(out, n);
    return out + modes;
  }
};

void expect_refused(const std::string& bytes,
                    std::initializer_list<const char*> parts,
                    uint64_t bin_bytes = 10) {
  expect_error<DataError>([&] { IndexLayout(std::as_bytes(std::span(bytes)), bin_bytes, "a.idx"); },
                          parts);
}

TEST(IndexLayout, GivesSequencesAndDocumentsOfAGoodIndex) {
  Index index;
  for (const char* modes : {"", "\1\1\1"}) {
    index.modes = modes;
    const std::string bytes = index.bytes();
    const IndexLayout layout(std::as_bytes(std::span(bytes)), 10, "a.idx");
    EXPECT_EQ(layout.dtype(), TokenDtype::U16);
    EXPECT_EQ(layout.num_sequences(), 3);
    EXPECT_EQ(layout.num_documents(), 2);
    EXPECT_EQ(layout.num_tokens(), 5);
    EXPECT_EQ(layout.length(2), 2);
    EXPECT_EQ(layout.token_begin(2), 3);
    EXPECT_EQ(layout.token_begin(3), 5);
    EXPECT_EQ(layout.first_sequence(1), 2);
    EXPECT_EQ(layout.first_sequence(2), 3);
  }
}

TEST(IndexLayout, AForeignFileIsNamed) {
  expect_refused(std::string(100, 'x'), {"a.idx [E-IDX-MAGIC]: byte 0", "MMIDIDX"});
  expect_refused("MMIDIDX", {"[E-IDX-SIZE]", "34 bytes of its header", "got 7"});
  expect_refused("", {"[E-IDX-SIZE]", "got 0"});
}

TEST(IndexLayout, AnotherVersionOrDtypeIsNamed) {
  Index index;
  index.version = 2;
  expect_refused(index.bytes(), {"[E-IDX-VERSION]: byte 9", "must be 1, got 2"});
  index = {};
  for (const auto& [code, text] : {std::pair(0, "got 0"),
                                   {6, "got 6 (floating point)"},
                                   {7, "got 7 (floating"},
                                   {9, "got 9"}}) {
    index.code = static_cast<uint8_t>(code);
    expect_refused(index.bytes(), {"[E-IDX-DTYPE]: byte 17", text});
  }
}

TEST(IndexLayout, EveryTruncationAndEveryExtraByteIsRefused) {
  const std::string bytes = Index{}.bytes();
  for (size_t size = 0; size < bytes.size(); ++size)
    expect_refused(bytes.substr(0, size), {"a.idx [E-IDX-SIZE]", "got"});
  expect_refused(bytes + "x", {"[E-IDX-SIZE]"});
}

TEST(IndexLayout, CountsThatDoNotFillTheFileAreRefusedWithoutOverflow) {
  Index index;
  for (const int64_t more :
       {int64_t{1}, int64_t{1} << 32, int64_t{1} << 60, int64_t{-1}, INT64_MAX}) {
    index.more_sequences = more;
    index.more_documents = 0;
    expect_refused(index.bytes(), {"[E-IDX-SIZE]: byte 18", "sequences"});
    index.more_sequences = 0;
    index.more_documents = more;
    expect_refused(index.bytes(), {"[E-IDX-SIZE]"});
  }
  index = {};
  index.documents = {};
  expect_refused(index.bytes(), {"[E-IDX-DOCUMENTS]: byte 26", "at least one entry, got 0"});
}

TEST(IndexLayout, NegativeLengthsAndPointersElsewhereAreNamed) {
  Index index;
  index.lengths[1] = -4;
  expect_refused(index.bytes(), {"[E-IDX-LENGTH]: byte 38", "sequence 1", ">= 0, got -4"});
  index = {};
  for (const int64_t pointer : {int64_t{5}, int64_t{8}, int64_t{-6}, INT64_MIN, INT64_MAX}) {
    index.pointers[2] = pointer;
    expect_refused(index.bytes(), {"[E-IDX-POINTER]: byte 62", "sequence 2", "byte 6 of the .bin"});
  }
}

TEST(IndexLayout, SequencesBeyondTheBinAndBinsOfOtherSizesAreNamed) {
  const std::string bytes = Index{}.bytes();
  expect_refused(
      bytes, {"[E-IDX-BEYOND]", "sequence 2 of 2 uint16 tokens from byte 6", "got a .bin of 8"}, 8);
  expect_refused(bytes, {"[E-IDX-BIN]", "10 bytes of uint16, got a .bin of 12"}, 12);
  Index huge;
  huge.lengths = {INT32_MAX, 0, 2};
  expect_refused(huge.bytes(), {"[E-IDX-BEYOND]", "sequence 0"});
}

TEST(IndexLayout, ADocumentIndexThatFallsOrEndsElsewhereIsNamed) {
  Index index;
  index.documents = {0, 3, 2, 3};
  expect_refused(index.bytes(), {"[E-IDX-DOCUMENTS]: byte 86", "entry 2", "3 to 3, got 2"});
  index.documents = {1, 2, 3};
  expect_refused(index.bytes(), {"entry 0 of the document index must be 0, got 1"});
  index.documents = {0, 2};
  expect_refused(index.bytes(), {"entry 1", "the number of sequences, 3, got 2"});
  index.documents = {0, 4, 3};
  expect_refused(index.bytes(), {"entry 1", "got 4"});
}

TEST(DtypeForVocabulary, IsMegatronsRuleAndBytes) {
  EXPECT_EQ(dtype_for_vocabulary(256), TokenDtype::U8);
  EXPECT_EQ(dtype_for_vocabulary(257), TokenDtype::U16);
  EXPECT_EQ(dtype_for_vocabulary(65499), TokenDtype::U16);
  EXPECT_EQ(dtype_for_vocabulary(65500), TokenDtype::I32);
}

class IndexedPair : public testing::Test {
 protected:
  [[nodiscard]] std::string name() const { return (folder_.path() / "data").string(); }

  void write(TokenDtype dtype, bool with_mask) const {
    IndexedWriter writer({.name = name(), .dtype = dtype, .with_mask = with_mask});
    writer.append(Ids{1, 2});
    writer.append(Ids{3}, false);
    writer.end_document();
    writer.end_document();  // an empty one leaves no trace
    writer.append(Ids{200});
    writer.end_document();
    for (const auto& rename : writer.finish(with_mask)) rename_durably(rename.from, rename.to);
  }

  test::TempFolder folder_;
};

TEST_F(IndexedPair, IsReadAsItWasWrittenInEveryType) {
  for (const TokenDtype dtype : {TokenDtype::U8, TokenDtype::U16, TokenDtype::I32}) {
    write(dtype, false);
    const IndexedFile file(name());
    EXPECT_EQ(file.layout().dtype(), dtype);
    EXPECT_EQ(file.layout().num_documents(), 2);
    EXPECT_EQ(file.document(0), (TokenRange{0, 3}));
    EXPECT_EQ(file.document(1), (TokenRange{3, 4}));
    std::vector<int64_t> ids(3);
    file.read(1, ids);
    EXPECT_EQ(ids, (std::vector<int64_t>{2, 3, 200}));
    EXPECT_FALSE(file.has_mask());
    std::vector<uint8_t> mask(4);
    file.read_mask(0, mask);
    EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 1, 1}));
  }
}

TEST_F(IndexedPair, TheOtherIntegerTypesOfForeignToolsAreReadWithTheirSigns) {
  const auto read_one = [&](uint8_t code, const std::string& bin) {
    Index index{.code = code, .lengths = {1}, .pointers = {0}, .documents = {0, 1}};
    folder_.write("data.idx", index.bytes());
    folder_.write("data.bin", bin);
    std::vector<int64_t> ids(1);
    IndexedFile(name()).read(0, ids);
    return ids[0];
  };
  EXPECT_EQ(read_one(1, "\xff"), 255);
  EXPECT_EQ(read_one(2, "\xff"), -1);
  EXPECT_EQ(read_one(3, "\xfe\xff"), -2);
  EXPECT_EQ(read_one(8, "\xfe\xff"), 65534);
  EXPECT_EQ(read_one(4, std::string("\0\0\1\0", 4)), 65536);
  EXPECT_EQ(read_one(5, std::string("\0\0\0\0\1\0\0\0", 8)), int64_t{1} << 32);
}

TEST_F(IndexedPair, TheMaskIsASiblingPairOfTheSameShape) {
  write(TokenDtype::U16, true);
  const IndexedFile file(name());
  ASSERT_TRUE(file.has_mask());
  std::vector<uint8_t> mask(4);
  file.read_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 0, 1}));
  const IndexedFile as_tokens(name() + ".mask");
  EXPECT_EQ(as_tokens.layout().dtype(), TokenDtype::U8);
  EXPECT_EQ(as_tokens.document(1), (TokenRange{3, 4}));
}

TEST_F(IndexedPair, AMaskOfOtherTokensOrHalfAMaskIsRefused) {
  write(TokenDtype::U16, true);
  const std::string good = read_text_file(name() + ".mask.idx");
  folder_.write("data.mask.bin", std::string("\1\1\2\1", 4));
  expect_error<DataError>(
      [&] {
        std::vector<uint8_t> mask(4);
        IndexedFile(name()).read_mask(0, mask);
      },
      {"data.mask.bin [E-IDX-MASK]: byte 2", "0 or 1, got 2"});
  const auto expect_mask = [&](const Index& index, std::initializer_list<const char*> parts) {
    folder_.write("data.mask.idx", index.bytes());
    expect_error<DataError>([&] { IndexedFile{name()}; }, parts);
  };
  expect_mask({.code = 2, .lengths = {3, 1}, .pointers = {0, 3}, .documents = {0, 1, 2}},
              {"data.mask.idx [E-IDX-MASK]", "uint8, got int8"});
  expect_mask({.code = 1, .lengths = {2, 2}, .pointers = {0, 2}, .documents = {0, 1, 2}},
              {"length of sequence 0", "3, got 2"});
  expect_mask({.code = 1, .lengths = {4}, .pointers = {0}, .documents = {0, 1}},
              {"number of sequences", "2, got 1"});
  expect_mask({.code = 1, .lengths = {3, 1}, .pointers = {0, 3}, .documents = {0, 2}},
              {"number of documents", "2, got 1"});
  expect_mask({.code = 1, .lengths = {3, 1}, .pointers = {0, 3}, .documents = {0, 2, 2}},
              {"first sequence of document 1", "1, got 2"});
  folder_.write("data.mask.idx", good);
  std::filesystem::remove(name() + ".mask.bin");
  expect_error<DataError>([&] { IndexedFile{name()}; }, {"both files", "only", "data.mask.idx"});
}

TEST_F(IndexedPair, MissingFilesAndFilesWithoutTokensAreNamed) {
  expect_error<DataError>([&] { IndexedFile{name()}; }, {"data.idx", "No such file"});
  write(TokenDtype::U8, false);
  std::filesystem::remove(name() + ".bin");
  expect_error<DataError>([&] { IndexedFile{name()}; }, {"data.bin", "No such file"});
  folder_.write("data.bin", "");
  folder_.write("data.idx",
                (Index{.code = 1, .lengths = {}, .pointers = {}, .documents = {0}}).bytes());
  expect_error<DataError>([&] { IndexedFile{name()}; }, {"data.idx", "at least one token"});
}

TEST_F(IndexedPair, ABinThatIsCutWhileItIsReadIsAnErrorNotACrash) {
  write(TokenDtype::I32, false);
  const IndexedFile file(name());
  std::filesystem::resize_file(name() + ".bin", 4);
  std::vector<int64_t> ids(4);
  expect_error<DataError>([&] { file.read(0, ids); }, {"data.bin", "16 bytes", "got 4"});
}

TEST_F(IndexedPair, TheFingerprintSeesEveryFile) {
  write(TokenDtype::U8, true);
  const std::string before = IndexedFile(name()).fingerprint();
  EXPECT_EQ(IndexedFile(name()).fingerprint(), before);
  folder_.write("data.mask.bin", std::string("\1\1\1\1", 4));
  const std::string other_mask = IndexedFile(name()).fingerprint();
  EXPECT_NE(other_mask, before);
  folder_.write("data.bin", std::string("\1\1\1\1", 4));
  EXPECT_NE(IndexedFile(name()).fingerprint(), other_mask);
}

TEST_F(IndexedPair, AWriterGoesOnFromAMarkAndDropsWhatCameAfterIt) {
  const IndexedTarget target{.name = name(), .dtype = TokenDtype::U16, .with_mask = true};
  IndexedMark mark;
  {
    IndexedWriter writer(target);
    writer.append(Ids{1, 2}, false);
    writer.end_document();
    writer.append(Ids{3});
    mark = writer.sync();
    writer.append(Ids(1'000'000, 9));
    writer.end_document();
  }
  EXPECT_EQ(mark, (IndexedMark{3, 1, 1, 1, 2}));
  IndexedWriter writer(target, mark);
  writer.append(Ids{4});
  writer.end_document();
  for (const auto& rename : writer.finish(true)) rename_durably(rename.from, rename.to);
  const IndexedFile file(name());
  std::vector<int64_t> ids(4);
  file.read(0, ids);
  EXPECT_EQ(ids, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(file.document(1), (TokenRange{2, 4}));
}

TEST_F(IndexedPair, ASecondWriterAndAMarkBeyondTheFilesAreRefused) {
  const IndexedTarget target{.name = name()};
  {
    const IndexedWriter writer(target);
    expect_error<DataError>([&] { IndexedWriter{target}; },
                            {"data.bin.part", "one program at a time"});
  }
  expect_error<DataError>([&] { IndexedWriter(target, {.num_tokens = 5}); },
                          {"data.bin.part", "5 bytes", "got 0"});
}

}  // namespace
}  // namespace lethe
