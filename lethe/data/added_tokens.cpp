#include <algorithm>
#include <utility>

#include "lethe/data/added_tokens_impl.h"

namespace lethe::detail {
namespace {

// Index of the first token of [begin, end) whose byte `depth` is at least `byte`; all of them agree
// in the bytes before, and those that end there come first.
size_t lower_bound_of(
    const std::vector<AddedToken>& tokens, size_t begin, size_t end, size_t depth, int byte) {
  const auto byte_of = [depth](const AddedToken& token) {
    return token.content.size() > depth ? static_cast<unsigned char>(token.content[depth]) : -1;
  };
  const auto first = tokens.begin();
  const auto found = std::partition_point(first + static_cast<std::ptrdiff_t>(begin),
                                          first + static_cast<std::ptrdiff_t>(end),
                                          [&](const auto& token) { return byte_of(token) < byte; });
  return static_cast<size_t>(found - first);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) {
    return a.content < b.content;
  });
  for (int byte = 0; byte < 256; ++byte)
    by_first_byte_[static_cast<size_t>(byte)] = {
        lower_bound_of(tokens_, 0, tokens_.size(), 0, byte),
        lower_bound_of(tokens_, 0, tokens_.size(), 0, byte + 1)};
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text) const {
  auto [begin, end] = by_first_byte_[static_cast<unsigned char>(text[0])];
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; begin < end; ++depth) {
    if (tokens_[begin].content.size() == depth) longest = &tokens_[begin];
    if (depth == text.size()) break;
    const int byte = static_cast<unsigned char>(text[depth]);
    const size_t first = lower_bound_of(tokens_, begin, end, depth, byte);
    end = lower_bound_of(tokens_, first, end, depth, byte + 1);
    begin = first;
  }
  return longest;
}

std::optional<AddedMatch> AddedTokenFinder::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    const Range& range = by_first_byte_[static_cast<unsigned char>(text[at])];
    if (range.begin == range.end) continue;
    if (const AddedToken* token = longest_at(text.substr(at)))
      return AddedMatch{at, at + token->content.size(), token->id};
  }
  return std::nullopt;
}

}  // namespace lethe::detail
