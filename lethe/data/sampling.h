#pragma once

#include <cstdint>
#include <span>

#include "lethe/base/random.h"

namespace lethe {

/// How a token is chosen from the logits of the next one.
struct SamplingSettings {
  double temperature = 1;  // divides the logits; 0 = always the likeliest token. >= 0
  double top_p = 1;        // share of the probability that is kept; 1 = all. > 0 and <= 1
  int64_t top_k = 0;       // likeliest tokens that are kept; 0 = all. >= 0
};

/// Throws ConfigError, naming the flag, where a setting is out of its range.
void check(const SamplingSettings& settings);

/// One token id from softmax(logits / temperature), restricted to the top_k likeliest tokens, then
/// to the smallest set of the likeliest of these whose share is >= top_p; at least one stays. Of
/// equal tokens the lower id counts as likelier, also at temperature 0.
///
/// logits  [V], V >= 1, in double; -inf = never. NumericError where one is NaN or +inf, or all are
///         -inf.
/// random  one uniform() is taken, none at temperature 0. The token is found by the cumulative sum
///         in index order: same logits, settings and generator state, same token.
[[nodiscard]] int64_t sample(std::span<const double> logits,
                             const SamplingSettings& settings,
                             Random& random);

}  // namespace lethe
