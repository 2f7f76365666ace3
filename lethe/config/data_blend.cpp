#include "lethe/config/data_blend.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::optional<double> number(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<BlendPart> parse_data_blend(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.size() < 2 || !number(words.front())) return {{text, 1}};
  LETHE_CHECK(ConfigError,
              words.size() % 2 == 0,
              "--data: a blend must be pairs of a weight and a path, got {} words in '{}'; write "
              "\"0.7 first 0.3 second\"",
              words.size(),
              text);
  std::vector<BlendPart> parts;
  std::set<std::string> seen;
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::optional<double> weight = number(words[i]);
    LETHE_CHECK(
        ConfigError,
        weight && std::isfinite(*weight) && *weight > 0,
        "--data: a weight must be a number > 0, got '{}' before '{}'; write \"0.7 first 0.3 "
        "second\"",
        words[i],
        words[i + 1]);
    LETHE_CHECK(ConfigError,
                seen.insert(words[i + 1]).second,
                "--data: each path must stand once, got '{}' again; add its weights up",
                words[i + 1]);
    parts.push_back({words[i + 1], *weight});
  }
  return parts;
}

}  // namespace lethe
