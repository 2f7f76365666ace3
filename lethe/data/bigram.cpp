#include "lethe/data/bigram.h"

#include <cmath>
#include <vector>

#include "lethe/base/error.h"

namespace lethe {

double bigram_entropy(const ByteText& text, std::span<const TextRange> documents) {
  std::vector<int64_t> count(static_cast<size_t>(kByteVocab * kByteVocab));
  int64_t pairs = 0;
  for (const TextRange& document : documents)
    for (int64_t i = document.begin + 1; i < document.end; ++i) {
      const auto at = static_cast<size_t>(i);
      ++count[static_cast<size_t>(text.bytes[at - 1]) * kByteVocab + text.bytes[at]];
      ++pairs;
    }
  LETHE_CHECK(
      DataError,
      pairs > 0,
      "data: a document must have two bytes, got {} documents of at most one; use more text",
      documents.size());
  double sum = 0;
  for (size_t a = 0; a < static_cast<size_t>(kByteVocab); ++a) {
    const std::span<const int64_t> row(&count[a * kByteVocab], kByteVocab);
    int64_t total = 0;
    for (const int64_t n : row) total += n;
    for (const int64_t n : row)
      if (n > 0)
        sum -=
            static_cast<double>(n) * std::log(static_cast<double>(n) / static_cast<double>(total));
  }
  return sum / static_cast<double>(pairs);
}

}  // namespace lethe
