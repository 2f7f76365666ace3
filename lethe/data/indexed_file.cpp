#include "lethe/data/indexed_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_facts.h"

namespace lethe {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{64} << 20;
constexpr uint64_t kBlockBytes = uint64_t{64} << 10;

template <class T>
void widen(std::span<const std::byte> bytes, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = value;
  }
}

void widen(TokenDtype dtype, std::span<const std::byte> bytes, std::span<int64_t> out) {
  switch (dtype) {
    case TokenDtype::U8:
      return widen<uint8_t>(bytes, out);
    case TokenDtype::I8:
      return widen<int8_t>(bytes, out);
    case TokenDtype::I16:
      return widen<int16_t>(bytes, out);
    case TokenDtype::U16:
      return widen<uint16_t>(bytes, out);
    case TokenDtype::I32:
      return widen<int32_t>(bytes, out);
    case TokenDtype::I64:
      return widen<int64_t>(bytes, out);
  }
  fail_internal("IndexedFile: not a dtype");
}

// Reading a mapped page behind the end of its file would kill the process.
std::span<const std::byte> stored(const MappedFile& bin,
                                  int64_t begin,
                                  size_t count,
                                  int64_t width) {
  LETHE_CHECK(DataError,
              bin.size_now() >= bin.bytes().size(),
              "{}: must keep its {} bytes while it is read, got {}; is another program writing it?",
              bin.path().string(),
              bin.bytes().size(),
              bin.size_now());
  return bin.bytes().subspan(static_cast<size_t>(begin * width),
                             count * static_cast<size_t>(width));
}

void hash_bin(const MappedFile& bin, Sha256& hash) {
  const std::span<const std::byte> bytes = bin.bytes();
  hash.add(std::as_bytes(std::span<const char>(fmt::format("{};", bytes.size()))));
  if (bytes.size() <= kWholeBytes) return hash.add(bytes);
  constexpr uint64_t kBlocks = kWholeBytes / kBlockBytes;
  const uint64_t room = bytes.size() - kBlockBytes;  // where the last block begins
  for (uint64_t i = 0; i < kBlocks; ++i) {
    // Two terms, so that nothing overflows: i * room / (blocks - 1), rounded down.
    const uint64_t at = room / (kBlocks - 1) * i + room % (kBlocks - 1) * i / (kBlocks - 1);
    hash.add(bytes.subspan(at, kBlockBytes));
  }
}

}  // namespace

IndexedFile::Pair::Pair(const std::string& name)
    : index(name + ".idx"),
      bin(name + ".bin"),
      layout(index.bytes(), bin.bytes().size(), name + ".idx") {}

IndexedFile::IndexedFile(const std::string& name) : name_(name), tokens_(name) {
  const std::string mask = name + ".mask";
  const bool has_index = file_exists(mask + ".idx");
  const bool has_bin = file_exists(mask + ".bin");
  LETHE_CHECK(DataError,
              has_index == has_bin,
              "{}.idx: a loss mask must have both files, got only {}; restore the other, or remove "
              "this one to count every token",
              mask,
              has_index ? mask + ".idx" : mask + ".bin");
  LETHE_CHECK(DataError,
              layout().num_tokens() > 0,
              "{}.idx: must describe at least one token, got {} sequences without any; prepare the "
              "data anew",
              name,
              layout().num_sequences());
  if (!has_index) return;
  mask_.emplace(mask);
  check_mask();
}

void IndexedFile::check_mask() const {
  const IndexLayout &tokens = tokens_.layout, &mask = mask_->layout;
  const auto expect_equal = [&](const std::string& what, int64_t expected, int64_t actual) {
    LETHE_CHECK(
        DataError,
        expected == actual,
        "{}.mask.idx [E-IDX-MASK]: {} must be as in {}.idx, {}, got {}; the mask belongs to "
        "other tokens",
        name_,
        what,
        name_,
        expected,
        actual);
  };
  LETHE_CHECK(
      DataError,
      mask.dtype() == TokenDtype::U8,
      "{}.mask.idx [E-IDX-MASK]: a loss mask must be of uint8, got {}; write 1 for a counted "
      "token and 0 for another",
      name_,
      dtype_name(mask.dtype()));
  expect_equal("the number of sequences", tokens.num_sequences(), mask.num_sequences());
  expect_equal("the number of documents", tokens.num_documents(), mask.num_documents());
  for (int64_t s = 0; s < tokens.num_sequences(); ++s)
    if (tokens.length(s) != mask.length(s))
      expect_equal(fmt::format("the length of sequence {}", s), tokens.length(s), mask.length(s));
  for (int64_t d = 0; d < tokens.num_documents(); ++d)
    if (tokens.first_sequence(d) != mask.first_sequence(d))
      expect_equal(fmt::format("the first sequence of document {}", d),
                   tokens.first_sequence(d),
                   mask.first_sequence(d));
}

TokenRange IndexedFile::document(int64_t d) const {
  const IndexLayout& index = layout();
  return {index.token_begin(index.first_sequence(d)),
          index.token_begin(index.first_sequence(d + 1))};
}

void IndexedFile::read(int64_t begin, std::span<int64_t> out) const {
  const TokenDtype dtype = layout().dtype();
  widen(dtype, stored(tokens_.bin, begin, out.size(), lethe::token_bytes(dtype)), out);
}

void IndexedFile::read_mask(int64_t begin, std::span<uint8_t> out) const {
  if (!mask_) {
    std::fill(out.begin(), out.end(), uint8_t{1});
    return;
  }
  const std::span<const std::byte> bytes = stored(mask_->bin, begin, out.size(), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::to_integer<uint8_t>(bytes[i]);
    LETHE_CHECK(
        DataError,
        out[i] <= 1,
        "{}.mask.bin [E-IDX-MASK]: byte {}: a loss mask must be 0 or 1, got {}; make the mask "
        "anew",
        name_,
        begin + static_cast<int64_t>(i),
        out[i]);
  }
}

std::string IndexedFile::fingerprint() const {
  Sha256 hash;
  hash.add(tokens_.index.bytes());
  hash_bin(tokens_.bin, hash);
  if (mask_) {
    hash.add(mask_->index.bytes());
    hash_bin(mask_->bin, hash);
  }
  return hash.hex();
}

}  // namespace lethe
