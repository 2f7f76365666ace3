#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace lethe {

/// Finaliser of splitmix64: a bijection on 64-bit words whose output bits all depend on all input
/// bits. Source: Steele, Lea, Flood 2014, with the constants of Stafford's variant 13.
[[nodiscard]] uint64_t mix64(uint64_t word);

/// Key of a named stream of random numbers: depends on every byte of `name` and every bit of
/// `seed`.
[[nodiscard]] uint64_t stream_key(uint64_t seed, std::string_view name);

/// Fills `out` with standard normal numbers times `std`: element i depends only on (key, i), so
/// neither threads nor the order or size of other fills move a bit. Box-Muller in double on two
/// counter words per pair of elements, rounded once; no element exceeds 8.58 * std. The counter
/// words are exact on every platform; log, sin and cos are libm's, in double.
void fill_normal(std::span<float> out, double std, uint64_t key);
void fill_normal(std::span<double> out, double std, uint64_t key);

/// Sequential generator for sampling and shuffling: splitmix64. Same numbers on every platform (no
/// distribution of the standard library, whose results differ between implementations).
/// A value: copying it copies the position. Not for cryptography; not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  /// The next 64 random bits.
  uint64_t next();

  /// Uniform in [0, bound), without bias (rejection). bound >= 1.
  uint64_t uniform_below(uint64_t bound);

  /// Uniform in [0, 1), multiples of 2^-53.
  double uniform();

  /// Uniformly random order (Fisher-Yates from the back).
  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t left = items.size(); left > 1; --left)
      std::swap(items[left - 1], items[static_cast<size_t>(uniform_below(left))]);
  }

 private:
  uint64_t state_;
};

}  // namespace lethe
