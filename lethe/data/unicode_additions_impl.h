#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lethe::detail {

/// Characters [first, last] of one general category that Unicode 14.0 has not assigned.
struct UnicodeAddition {
  std::string_view category;  // two letters, e.g. "So"
  uint32_t first = 0;
  uint32_t last = 0;
};

/// All of Unicode 15.0 to 16.0, ascending. Expressions name them besides PCRE2's own tables, so
/// that ids depend neither on the PCRE2 that is installed (10.42: Unicode 14.0, 10.45: 16.0) nor
/// differ from those of `tokenizers` 0.23, which knows Unicode 16.0.
[[nodiscard]] std::span<const UnicodeAddition> unicode_additions();

}  // namespace lethe::detail
