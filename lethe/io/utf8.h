#pragma once

#include <cstddef>
#include <string_view>

namespace lethe {

/// Index of the first byte that does not belong to well-formed UTF-8 (no surrogates, no overlong
/// forms); text.size() when there is none.
[[nodiscard]] size_t first_invalid_utf8(std::string_view text);

}  // namespace lethe
