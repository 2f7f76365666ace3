#include "lethe/config/operator_exceptions.h"

#include <algorithm>
#include <string_view>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::pair<std::string, std::string> parse_part(std::string_view part) {
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  const std::string_view word =
      equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
  LETHE_CHECK(
      ConfigError,
      !name.empty() && (word == "auto" || word == "none" || word == "fused"),
      "--operator-implementation [form]: must be NAME=auto, NAME=none or NAME=fused, several "
      "with commas between, got '{}'; correct this part",
      part);
  return {std::string(name), std::string(word)};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> operator_exceptions(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    auto parsed = parse_part(rest.substr(0, comma));
    const bool again = std::any_of(
        out.begin(), out.end(), [&](const auto& other) { return other.first == parsed.first; });
    LETHE_CHECK(ConfigError,
                !again,
                "--operator-implementation [once]: must name an operator once, got {} twice; leave "
                "one out",
                parsed.first);
    out.push_back(std::move(parsed));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
    LETHE_CHECK(ConfigError,
                !rest.empty(),
                "--operator-implementation [form]: must not end with a comma, got '{}'; remove it",
                text);
  }
  return out;
}

}  // namespace lethe
