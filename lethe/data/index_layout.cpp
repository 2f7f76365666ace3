#include "lethe/data/index_layout.h"

#include <bit>
#include <cstring>
#include <limits>

#include "lethe/base/error.h"

namespace lethe {
namespace {

static_assert(std::endian::native == std::endian::little, "index files are read in place");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);

constexpr uint64_t kVersionAt = 9;
constexpr uint64_t kDtypeAt = 17;
constexpr uint64_t kSequencesAt = 18;
constexpr uint64_t kDocumentsAt = 26;
constexpr uint64_t kLengthsAt = 34;

// Entries of the tables, far below what overflows a byte offset.
constexpr uint64_t kMostEntries = uint64_t{1} << 56;

}  // namespace

int64_t token_bytes(TokenDtype dtype) {
  switch (dtype) {
    case TokenDtype::U8:
    case TokenDtype::I8:
      return 1;
    case TokenDtype::I16:
    case TokenDtype::U16:
      return 2;
    case TokenDtype::I32:
      return 4;
    case TokenDtype::I64:
      return 8;
  }
  fail_internal("token_bytes: not a dtype");
}

std::string_view dtype_name(TokenDtype dtype) {
  switch (dtype) {
    case TokenDtype::U8:
      return "uint8";
    case TokenDtype::I8:
      return "int8";
    case TokenDtype::I16:
      return "int16";
    case TokenDtype::I32:
      return "int32";
    case TokenDtype::I64:
      return "int64";
    case TokenDtype::U16:
      return "uint16";
  }
  fail_internal("dtype_name: not a dtype");
}

TokenDtype dtype_for_vocabulary(int64_t vocab_size) {
  constexpr int64_t kMegatronLimit = 65500;
  if (vocab_size <= 256) return TokenDtype::U8;
  return vocab_size < kMegatronLimit ? TokenDtype::U16 : TokenDtype::I32;
}

template <class T>
T IndexLayout::read(uint64_t offset) const {
  T value{};
  std::memcpy(&value, bytes_.data() + offset, sizeof(T));
  return value;
}

IndexLayout::IndexLayout(std::span<const std::byte> bytes, uint64_t bin_bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  read_header();
  check_sequences(bin_bytes);
  check_documents();
}

void IndexLayout::read_header() {
  const uint64_t size = bytes_.size();
  LETHE_CHECK(
      DataError,
      size >= kLengthsAt,
      "{} [E-IDX-SIZE]: must have at least the {} bytes of its header, got {}; the file was "
      "cut, make it anew",
      name_,
      kLengthsAt,
      size);
  LETHE_CHECK(DataError,
              std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) == 0,
              "{} [E-IDX-MAGIC]: byte 0: must be \"MMIDIDX\" and two zero bytes, got something "
              "else; this is no index of a token file, check the path",
              name_);
  const auto version = read<uint64_t>(kVersionAt);
  LETHE_CHECK(DataError,
              version == 1,
              "{} [E-IDX-VERSION]: byte {}: the version must be 1, got {}; write the file with a "
              "current tool",
              name_,
              kVersionAt,
              version);
  const auto code = read<uint8_t>(kDtypeAt);
  LETHE_CHECK(DataError,
              (code >= 1 && code <= 5) || code == 8,
              "{} [E-IDX-DTYPE]: byte {}: the dtype code must be that of integers (1 to 5, or 8), "
              "got {}{}; tokens are integers, check the path",
              name_,
              kDtypeAt,
              code,
              code == 6 || code == 7 ? " (floating point)" : "");
  dtype_ = static_cast<TokenDtype>(code);
  const auto sequences = read<uint64_t>(kSequencesAt), entries = read<uint64_t>(kDocumentsAt);
  const uint64_t without_modes = sequences < kMostEntries && entries < kMostEntries
                                     ? kLengthsAt + 12 * sequences + 8 * entries
                                     : std::numeric_limits<uint64_t>::max();
  // The modes are one byte per sequence.
  LETHE_CHECK(DataError,
              size == without_modes || (size > without_modes && size - without_modes == sequences),
              "{} [E-IDX-SIZE]: byte {}: the file must have the bytes of {} sequences and {} "
              "entries of the "
              "document index, got {} bytes; it was cut or has been damaged, make it anew",
              name_,
              kSequencesAt,
              sequences,
              entries,
              size);
  LETHE_CHECK(DataError,
              entries >= 1,
              "{} [E-IDX-DOCUMENTS]: byte {}: the document index must have at least one entry, got "
              "0; make the file anew",
              name_,
              kDocumentsAt);
  num_sequences_ = static_cast<int64_t>(sequences);
  num_index_entries_ = static_cast<int64_t>(entries);
}

int64_t IndexLayout::length(int64_t s) const {
  return read<int32_t>(kLengthsAt + 4 * static_cast<uint64_t>(s));
}

int64_t IndexLayout::token_begin(int64_t s) const {
  if (s == num_sequences_) return num_tokens_;
  const auto at =
      kLengthsAt + 4 * static_cast<uint64_t>(num_sequences_) + 8 * static_cast<uint64_t>(s);
  return read<int64_t>(at) / token_bytes(dtype_);
}

int64_t IndexLayout::first_sequence(int64_t d) const {
  return read<int64_t>(kLengthsAt + 12 * static_cast<uint64_t>(num_sequences_) +
                       8 * static_cast<uint64_t>(d));
}

void IndexLayout::check_sequences(uint64_t bin_bytes) {
  const auto pointers_at = kLengthsAt + 4 * static_cast<uint64_t>(num_sequences_);
  const auto width = static_cast<uint64_t>(token_bytes(dtype_));
  uint64_t next = 0;  // never above bin_bytes
  for (int64_t s = 0; s < num_sequences_; ++s) {
    const int64_t tokens = length(s);
    LETHE_CHECK(
        DataError,
        tokens >= 0,
        "{} [E-IDX-LENGTH]: byte {}: the length of sequence {} must be >= 0, got {}; the file "
        "has been damaged, make it anew",
        name_,
        kLengthsAt + 4 * static_cast<uint64_t>(s),
        s,
        tokens);
    const uint64_t at = pointers_at + 8 * static_cast<uint64_t>(s);
    const auto pointer = read<int64_t>(at);
    LETHE_CHECK(
        DataError,
        pointer >= 0 && static_cast<uint64_t>(pointer) == next,
        "{} [E-IDX-POINTER]: byte {}: sequence {} must begin where the one before it ends, at "
        "byte {} of the .bin, got {}; the file has been damaged, make it anew",
        name_,
        at,
        s,
        next,
        pointer);
    const uint64_t bytes = static_cast<uint64_t>(tokens) * width;
    LETHE_CHECK(
        DataError,
        bytes <= bin_bytes - next,
        "{} [E-IDX-BEYOND]: byte {}: sequence {} of {} {} tokens from byte {} must lie in the "
        ".bin, got a .bin of {} bytes; it was cut or belongs to another index",
        name_,
        at,
        s,
        tokens,
        dtype_name(dtype_),
        next,
        bin_bytes);
    next += bytes;
  }
  LETHE_CHECK(
      DataError,
      next == bin_bytes,
      "{} [E-IDX-BIN]: its {} sequences must fill the .bin, {} bytes of {}, got a .bin of {} "
      "bytes; it belongs to another index or is unfinished",
      name_,
      num_sequences_,
      next,
      dtype_name(dtype_),
      bin_bytes);
  num_tokens_ = static_cast<int64_t>(next / width);
}

void IndexLayout::check_documents() const {
  int64_t before = 0;
  for (int64_t d = 0; d < num_index_entries_; ++d) {
    const int64_t entry = first_sequence(d);
    const bool is_first = d == 0, is_last = d + 1 == num_index_entries_;
    LETHE_CHECK(
        DataError,
        entry >= before && entry <= num_sequences_ && (!is_first || entry == 0) &&
            (!is_last || entry == num_sequences_),
        "{} [E-IDX-DOCUMENTS]: byte {}: entry {} of the document index must be {}, got {}; "
        "the file has been damaged, make it anew",
        name_,
        kLengthsAt + 12 * static_cast<uint64_t>(num_sequences_) + 8 * static_cast<uint64_t>(d),
        d,
        is_last    ? fmt::format("the number of sequences, {}", num_sequences_)
        : is_first ? std::string("0")
                   : fmt::format("{} to {}", before, num_sequences_),
        entry);
    before = entry;
  }
}

}  // namespace lethe
