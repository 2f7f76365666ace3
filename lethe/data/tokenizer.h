#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lethe {

/// Text to token ids and back. Two kinds: bytes(), and byte-level BPE read from a hub
/// `tokenizer.json`. Ids are those of the `tokenizers` library for the same file and valid UTF-8.
///
/// Any bytes are text: decode(encode(x)) == x. A byte that does not belong to well-formed UTF-8 is
/// a piece of its own (one token): no added token, expression or merge reaches across it.
///
/// Immutable; copies share everything. All functions may be called from several threads at once:
/// encode() takes its working memory (a word cache of 4 MiB, and what the longest word up to 1 MiB
/// needed) from a pool that grows to the largest number of simultaneous calls. Deterministic,
/// whatever the cache holds.
class Tokenizer final {
 public:
  /// Ids are bytes, the vocabulary is 256. No added tokens.
  static Tokenizer bytes();

  /// A hub tokenizer.json: `added_tokens` (special and normalized; no lstrip, rstrip,
  /// single_word), no normalizer, `pre_tokenizer` = Split(Regex, Isolated)... then ByteLevel,
  /// `model` of type BPE. DataError naming file and rule for anything else, for a file that cannot
  /// be read and for one that contradicts itself (docs: lethe/data/tokenizer_json_impl.h).
  static Tokenizer from_file(const std::filesystem::path& path);

  /// from_file() of a file's content; `name` stands for the path in errors.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  /// Appends the ids of `text` to `out`. Added tokens are recognised in the text, nothing is put
  /// before or after it (add_special_tokens=False of `tokenizers`). Two texts encoded one after
  /// another may have other tokens than both together. DataError: 2^31 bytes or more, or a text
  /// that exhausts the matcher of the expressions.
  void encode(std::string_view text, std::vector<int32_t>& out) const;

  /// The exact bytes of the tokens one after another, special tokens kept; not always UTF-8.
  /// DataError on an id that is no token.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;

  /// Largest id + 1.
  [[nodiscard]] int64_t vocab_size() const;

  /// The bytes that `id` stands for. DataError on an id that is no token.
  [[nodiscard]] std::string token_bytes(int32_t id) const;

  /// The id of an added token (its content) or of a vocabulary entry as the file spells it (" the"
  /// is "\u0120the" there). bytes(): of a text of one byte.
  [[nodiscard]] std::optional<int32_t> find(std::string_view token) const;

  /// "bytes", or the SHA-256 of the file: 64 hexadecimal digits.
  [[nodiscard]] const std::string& fingerprint() const;

 private:
  class Bpe;
  Tokenizer(std::shared_ptr<const Bpe> bpe, std::string fingerprint);

  std::shared_ptr<const Bpe> bpe_;  // none: ids are bytes
  std::string fingerprint_;
};

}  // namespace lethe
