#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lethe::detail {

/// One of `added_tokens`: recognised in a text before it is cut into pieces.
struct AddedToken {
  int32_t id = 0;
  std::string content;      // not empty
  bool normalized = false;  // true: looked for after those that are not
};

/// Where an added token stands in a text.
struct AddedMatch {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = 0;
};

/// Finds tokens in a text: the leftmost, of those the longest.
class AddedTokenFinder {
 public:
  /// tokens: contents are distinct and not empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  /// The first match at or behind byte `from`.
  [[nodiscard]] std::optional<AddedMatch> find(std::string_view text, size_t from) const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  [[nodiscard]] const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;        // by content
  std::array<Range, 256> by_first_byte_;  // of tokens_
};

}  // namespace lethe::detail
