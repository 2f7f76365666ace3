#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lethe {

/// Insertions, deletions, substitutions and swaps of neighbours that turn a into b (bytes,
/// case-sensitive).
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate a user most likely meant by `word`: smallest edit distance with '-' and '_' equal
/// and case ignored, the first of equals; none when more than a third of the word (at least 2
/// edits) would change.
[[nodiscard]] std::optional<std::string> nearest_match(std::string_view word,
                                                       std::span<const std::string> candidates);

/// The end of an error text about an unknown `word`: "did you mean 'X'?" or, without a near
/// candidate, `otherwise`.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string> candidates,
                                       std::string_view otherwise);

}  // namespace lethe
