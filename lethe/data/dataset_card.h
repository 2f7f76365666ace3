#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lethe {

/// NAME.json beside NAME.bin/.idx: what the tokens are and where they came from. Data of other
/// tools has none; nothing but early checks and facts for people depends on it.
struct DatasetCard {
  struct Source {
    std::string path;  // as the user gave it
    int64_t bytes = 0;
    std::string sha256;
  };

  std::string tokenizer;              // "bytes" or "tokenizer.json"
  std::string tokenizer_fingerprint;  // Tokenizer::fingerprint()
  int64_t vocab_size = 0;
  std::string dtype;  // of the .bin
  int64_t documents = 0;
  int64_t empty_documents = 0;
  int64_t tokens = 0;
  int64_t masked_tokens = 0;
  int64_t largest_id = -1;
  std::string input_format;     // "auto", "text", "lines", "jsonl"
  std::string end_of_document;  // token, "" = none
  std::vector<Source> sources;

  [[nodiscard]] std::string to_json() const;

  /// DataError "FILE: ..." for text that is no card.
  static DatasetCard from_json(std::string_view text, const std::string& file);
};

/// The card of NAME, or nothing when NAME.json does not exist or is of another format. DataError
/// when it is a damaged card.
std::optional<DatasetCard> read_card(const std::string& name);

}  // namespace lethe
