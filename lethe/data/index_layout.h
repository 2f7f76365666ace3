#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lethe {

/// Element type of a .bin file, with the code that its .idx names.
enum class TokenDtype : uint8_t { U8 = 1, I8 = 2, I16 = 3, I32 = 4, I64 = 5, U16 = 8 };

/// Bytes of one token.
[[nodiscard]] int64_t token_bytes(TokenDtype dtype);

/// "uint8", "int32", ...: numpy's names.
[[nodiscard]] std::string_view dtype_name(TokenDtype dtype);

/// The narrowest type that Megatron's tools choose for a vocabulary, and uint8 for bytes: uint8 up
/// to 256 ids, uint16 below 65500, else int32. vocab_size >= 1.
[[nodiscard]] TokenDtype dtype_for_vocabulary(int64_t vocab_size);

/// The content of an .idx file, checked as a whole; reads the file's bytes in place (little-endian,
/// unaligned), so it holds nothing per sequence or document.
///   "MMIDIDX\0\0"  u64 version = 1  u8 dtype code  u64 S sequences  u64 D entries of the document
///   index  i32 lengths[S]  i64 byte pointers[S]  i64 document index[D]  optional i8 modes[S]
/// Rules beyond the sizes: S and D fit the file exactly; no length is negative; pointers are those
/// of sequences that lie one after another from byte 0 to the end of the .bin (what Megatron's
/// writers make); the document index begins with 0, never falls and ends with S; modes are not
/// supported by training and only skipped. Source: foundations 4, Megatron-LM
/// core/datasets/indexed_dataset.py.
class IndexLayout {
 public:
  /// bytes: of the .idx, must outlive this object. bin_bytes: size of the .bin. name: the .idx as
  /// errors call it. Throws DataError "NAME [RULE]: byte OFFSET, ENTRY: ...".
  IndexLayout(std::span<const std::byte> bytes, uint64_t bin_bytes, std::string name);

  [[nodiscard]] TokenDtype dtype() const { return dtype_; }

  [[nodiscard]] int64_t num_sequences() const { return num_sequences_; }

  /// Documents, empty ones included: entries of the document index without its last.
  [[nodiscard]] int64_t num_documents() const { return num_index_entries_ - 1; }

  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }

  /// Tokens of sequence s.
  [[nodiscard]] int64_t length(int64_t s) const;

  /// Place of sequence s's first token among all tokens; s = num_sequences() gives num_tokens().
  [[nodiscard]] int64_t token_begin(int64_t s) const;

  /// First sequence of document d; d = num_documents() gives num_sequences().
  [[nodiscard]] int64_t first_sequence(int64_t d) const;

 private:
  void read_header();
  void check_sequences(uint64_t bin_bytes);
  void check_documents() const;
  template <class T>
  [[nodiscard]] T read(uint64_t offset) const;

  std::span<const std::byte> bytes_;
  std::string name_;
  TokenDtype dtype_ = TokenDtype::U8;
  int64_t num_sequences_ = 0;
  int64_t num_index_entries_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace lethe
