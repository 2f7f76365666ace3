#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "lethe/data/byte_text.h"
#include "lethe/data/dataset_card.h"
#include "lethe/data/indexed_file.h"
#include "lethe/data/token_range.h"

namespace lethe {

/// The documents of one part of the training data, one after another as one long row of tokens:
/// byte text in memory, or a memory-mapped NAME.bin/.idx, of which nothing is held. Thread-safe
/// after construction.
class Corpus {
 public:
  /// path: a file or folder of text (byte tokens), or NAME of NAME.bin/.idx (also NAME.idx or
  /// NAME.bin). DataError of load_text, IndexedFile or read_card.
  static Corpus open(const std::string& path);

  explicit Corpus(ByteText text, std::string name = "text");
  explicit Corpus(IndexedFile file);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] bool is_byte_text() const { return std::holds_alternative<ByteText>(tokens_); }

  [[nodiscard]] bool has_mask() const;

  [[nodiscard]] const std::optional<DatasetCard>& card() const { return card_; }

  [[nodiscard]] int64_t num_tokens() const;

  /// Documents, including empty ones.
  [[nodiscard]] int64_t num_documents() const;

  [[nodiscard]] TokenRange document(int64_t d) const;

  /// Calls visit(d, range) for every document with tokens in `within`, clipped to it, in order.
  void for_each_document(TokenRange within,
                         const std::function<void(int64_t, TokenRange)>& visit) const;

  /// Copies tokens [begin, begin + out.size()).
  void read(int64_t begin, std::span<int64_t> out) const;

  /// 1 = the loss on this token is counted.
  void read_mask(int64_t begin, std::span<uint8_t> out) const;

  /// "document 17 (a/b.txt), token 5": where token `at` is, for errors.
  [[nodiscard]] std::string place_of(int64_t at) const;

  /// SHA-256 over tokens and documents (byte text: all of them; else IndexedFile::fingerprint).
  [[nodiscard]] std::string fingerprint() const;

 private:
  std::string name_;
  std::variant<ByteText, IndexedFile> tokens_;
  std::optional<DatasetCard> card_;
};

}  // namespace lethe
