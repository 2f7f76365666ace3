#include "lethe/base/nearest.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace lethe {
namespace {

// Names are ASCII; a locale must not decide what a user meant.
std::string folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return out;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: the one being filled and the two before it (a swap looks back two).
  std::array<std::vector<size_t>, 3> rows;
  rows.fill(std::vector<size_t>(b.size() + 1));
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::optional<std::string> nearest_match(std::string_view word,
                                         std::span<const std::string> candidates) {
  const std::string wanted = folded(word);
  size_t best = std::max<size_t>(2, wanted.size() / 3) + 1;
  std::optional<std::string> match;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(wanted, folded(candidate));
    // A candidate of which nothing would remain is no suggestion ("ab" for "xy").
    if (distance < best && distance < candidate.size()) {
      best = distance;
      match = candidate;
    }
  }
  return match;
}

std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates,
                         std::string_view otherwise) {
  const auto match = nearest_match(word, candidates);
  return match ? fmt::format("did you mean '{}'?", *match) : std::string(otherwise);
}

}  // namespace lethe
