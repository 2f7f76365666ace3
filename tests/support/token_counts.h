#pragma once

#include <cstdint>

namespace lethe::test {

/// The token counts at which every operator is tried (model spec 15).
inline constexpr int64_t kTokenCounts[] = {1, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};

}  // namespace lethe::test
