#pragma once

#include <cstdint>

namespace lethe {

/// Tokens [begin, end) of a corpus: a document, a part of one, or several.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }

  bool operator==(const TokenRange&) const = default;
};

}  // namespace lethe
