#include "lethe/base/random.h"

#include <cmath>
#include <numbers>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;  // odd, 2^64 / golden ratio

constexpr double kUnit = 0x1p-53;

// Word `index` of the counter-based stream `key`.
uint64_t word_at(uint64_t key, uint64_t index) {
  return mix64(key + (index + 1) * kGoldenGamma);
}

template <class T>
void fill_normal_of(std::span<T> out, double std, uint64_t key) {
  for (size_t i = 0; i < out.size(); i += 2) {
    // (0, 1]: the logarithm of the first must be finite.
    const double u = static_cast<double>((word_at(key, i) >> 11) + 1) * kUnit;
    const double v = static_cast<double>(word_at(key, i + 1) >> 11) * kUnit;
    const double radius = std * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    out[i] = static_cast<T>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<T>(radius * std::sin(angle));
  }
}

}  // namespace

uint64_t mix64(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t key = mix64(seed + kGoldenGamma);
  for (const char c : name) key = mix64(key ^ static_cast<unsigned char>(c)) + kGoldenGamma;
  return mix64(key ^ name.size());
}

void fill_normal(std::span<float> out, double std, uint64_t key) {
  fill_normal_of(out, std, key);
}

void fill_normal(std::span<double> out, double std, uint64_t key) {
  fill_normal_of(out, std, key);
}

uint64_t Random::next() {
  state_ += kGoldenGamma;
  return mix64(state_);
}

uint64_t Random::uniform_below(uint64_t bound) {
  if (bound == 0) fail_internal("Random: uniform_below needs a bound >= 1, got 0");
  // The lowest (2^64 mod bound) words are refused: the rest is a whole number of residue cycles.
  const uint64_t refused = (0 - bound) % bound;
  uint64_t word = next();
  while (word < refused) word = next();
  return word % bound;
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * kUnit;
}

}  // namespace lethe
