#include "lethe/data/split.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// First byte of the validation text.
int64_t cut_position(const ByteText& text, int64_t wanted, int64_t needed) {
  const int64_t total = std::ssize(text.bytes);
  int64_t best = -1;
  for (const TextRange& document : text.documents) {
    const int64_t valid = total - document.begin;
    const bool fits = 2 * valid >= wanted && 2 * valid <= 3 * wanted && valid >= needed &&
                      document.begin >= needed;
    if (!fits) continue;
    if (best < 0 || std::abs(valid - wanted) <= std::abs(total - best - wanted))
      best = document.begin;
  }
  return best < 0 ? total - wanted : best;
}

}  // namespace

TextSplit split_text(const ByteText& text, double valid_fraction, int64_t seq_length) {
  LETHE_CHECK(ConfigError,
              valid_fraction >= 0 && valid_fraction < 1,
              "data: valid-fraction must be in [0, 1), got {}; 0.1 keeps a tenth for validation",
              valid_fraction);
  LETHE_CHECK(ConfigError,
              seq_length >= 1,
              "data: the sequence length must be >= 1, got {}; correct the setting",
              seq_length);
  const int64_t total = std::ssize(text.bytes), needed = seq_length + 1;
  const int64_t wanted = std::llround(valid_fraction * static_cast<double>(total));
  const int64_t cut = valid_fraction == 0 ? total : cut_position(text, wanted, needed);
  const auto expect_sequence = [&](const char* part, int64_t size, const char* way_out) {
    LETHE_CHECK(DataError,
                size >= needed,
                "data: the {} text must hold one sequence, {} + 1 bytes, got {} of the {} bytes at "
                "valid-fraction {}; {}",
                part,
                seq_length,
                size,
                total,
                valid_fraction,
                way_out);
  };
  expect_sequence("training", cut, "use more text, a shorter sequence or a smaller valid-fraction");
  if (valid_fraction > 0)
    expect_sequence(
        "validation", total - cut, "use more text, a shorter sequence or a larger valid-fraction");
  TextSplit split;
  for (const TextRange& document : text.documents) {
    const int64_t middle = std::min(std::max(cut, document.begin), document.end);
    if (document.begin < middle) split.train.push_back({document.begin, middle});
    if (middle < document.end) split.valid.push_back({middle, document.end});
  }
  return split;
}

}  // namespace lethe
