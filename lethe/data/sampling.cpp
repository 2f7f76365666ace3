#include "lethe/data/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lethe/base/error.h"

namespace lethe {
namespace {

void check_logits(std::span<const double> logits, double largest) {
  LETHE_CHECK(NumericError,
              std::isfinite(largest),
              "generate: the largest logit must be finite, got {}; was the training stopped by a "
              "loss that is not finite?",
              largest);
  const bool has_nan =
      std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); });
  LETHE_CHECK(NumericError,
              !has_nan,
              "generate: logits must be numbers, got NaN; was the training stopped by a loss that "
              "is not finite?");
}

/// Token ids from the likeliest on.
std::vector<size_t> by_likelihood(std::span<const double> logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  return order;
}

/// Sets the mass of tokens that top_k and top_p exclude to zero.
void restrict_mass(std::vector<double>& mass,
                   std::span<const double> logits,
                   const SamplingSettings& settings) {
  const size_t top_k = settings.top_k == 0 ? mass.size() : static_cast<size_t>(settings.top_k);
  if (settings.top_p >= 1 && top_k >= mass.size()) return;
  const std::vector<size_t> order = by_likelihood(logits);
  const size_t candidates = std::min(top_k, order.size());
  double total = 0;
  for (size_t i = 0; i < candidates; ++i) total += mass[order[i]];
  size_t kept = 0;
  double sum = 0;
  do sum += mass[order[kept++]];
  while (kept < candidates && (settings.top_p >= 1 || sum < settings.top_p * total));
  for (size_t i = kept; i < order.size(); ++i) mass[order[i]] = 0;
}

}  // namespace

void check(const SamplingSettings& settings) {
  LETHE_CHECK(ConfigError,
              std::isfinite(settings.temperature) && settings.temperature >= 0,
              "--temperature: must be a finite number >= 0, got {}; 0 takes the likeliest token",
              settings.temperature);
  LETHE_CHECK(ConfigError,
              settings.top_p > 0 && settings.top_p <= 1,
              "--top-p: must be > 0 and <= 1, got {}; 1 keeps every token",
              settings.top_p);
  LETHE_CHECK(ConfigError,
              settings.top_k >= 0,
              "--top-k: must be >= 0, got {}; 0 keeps every token",
              settings.top_k);
}

int64_t sample(std::span<const double> logits, const SamplingSettings& settings, Random& random) {
  check(settings);
  LETHE_CHECK(NumericError,
              !logits.empty(),
              "generate: the logits must have at least one entry, got none; is the vocabulary "
              "empty?");
  const auto best = std::max_element(logits.begin(), logits.end());
  check_logits(logits, *best);
  if (settings.temperature == 0) return best - logits.begin();
  std::vector<double> mass(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    mass[i] = std::exp((logits[i] - *best) / settings.temperature);
  restrict_mass(mass, logits, settings);
  double total = 0;
  for (const double m : mass) total += m;
  double left = random.uniform() * total;
  for (size_t i = 0; i < mass.size(); ++i)
    if ((left -= mass[i]) < 0) return static_cast<int64_t>(i);
  return best - logits.begin();  // rounding left a rest of the last interval
}

}  // namespace lethe
