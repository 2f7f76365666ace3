#pragma once

#include <string>
#include <string_view>

namespace lethe::detail {

/// An expression of the hub (Oniguruma's syntax) as PCRE2 must read it for the same matches.
/// DataError [E-TOK-REGEX] "WHERE [..]: .. at byte N" for syntax that the two read differently.
[[nodiscard]] std::string pcre2_expression(std::string_view expression, const std::string& where);

}  // namespace lethe::detail
