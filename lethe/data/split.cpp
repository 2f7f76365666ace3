#include "lethe/data/split.h"

#include <cmath>
#include <cstdlib>

#include "lethe/base/error.h"

namespace lethe {
namespace {

// First token of the validation end.
int64_t cut_position(const Corpus& corpus, int64_t wanted, int64_t needed) {
  const int64_t total = corpus.num_tokens();
  int64_t best = -1;
  const int64_t most = wanted + wanted / 2 + 1;  // boundaries further from the end never fit
  corpus.for_each_document({total > most ? total - most : 0, total}, [&](int64_t d, TokenRange) {
    const int64_t begin = corpus.document(d).begin, valid = total - begin;
    const bool fits =
        2 * valid >= wanted && 2 * valid <= 3 * wanted && valid >= needed && begin >= needed;
    if (!fits) return;
    if (best < 0 || std::abs(valid - wanted) <= std::abs(total - best - wanted)) best = begin;
  });
  return best < 0 ? total - wanted : best;
}

}  // namespace

CorpusSplit split_corpus(const Corpus& corpus, double valid_fraction, int64_t seq_length) {
  LETHE_CHECK(ConfigError,
              valid_fraction >= 0 && valid_fraction < 1,
              "data: --valid-fraction must be in [0, 1), got {}; 0.1 keeps a tenth for validation",
              valid_fraction);
  LETHE_CHECK(ConfigError,
              seq_length >= 1,
              "data: the sequence length must be >= 1, got {}; correct the setting",
              seq_length);
  const int64_t total = corpus.num_tokens(), needed = seq_length + 1;
  const int64_t wanted = std::llround(valid_fraction * static_cast<double>(total));
  const int64_t cut = valid_fraction == 0 ? total : cut_position(corpus, wanted, needed);
  const auto expect_sequence = [&](const char* part, int64_t size, const char* way_out) {
    LETHE_CHECK(DataError,
                size >= needed,
                "data: the {} part of '{}' must hold one sequence, {} + 1 tokens, got {} of the {} "
                "tokens at --valid-fraction {}; {}",
                part,
                corpus.name(),
                seq_length,
                size,
                total,
                valid_fraction,
                way_out);
  };
  expect_sequence(
      "training", cut, "use more text, a shorter sequence or a smaller --valid-fraction");
  if (valid_fraction > 0)
    expect_sequence("validation",
                    total - cut,
                    "use more text, a shorter sequence or a larger --valid-fraction");
  return {.train = {0, cut}, .valid = {cut, total}};
}

}  // namespace lethe
