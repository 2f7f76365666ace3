#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lethe {

/// The value of --operator-implementation, "NAME=WORD,NAME=WORD", as (operator, word) pairs in
/// order; the words are auto, none and fused, names are not checked here. Throws ConfigError naming
/// the first part of another form, or an operator that appears twice.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> operator_exceptions(
    const std::string& text);

}  // namespace lethe
