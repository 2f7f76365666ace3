#pragma once

#include <algorithm>
#include <vector>

namespace lethe::bench {

/// The middle one, or the mean of the two in the middle. At least one value.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// The value below which i quarters of them lie, i in 0..4; of few values the next lower one.
[[nodiscard]] inline double quartile(std::vector<double> values, size_t i) {
  std::sort(values.begin(), values.end());
  return values[i * (values.size() - 1) / 4];
}

}  // namespace lethe::bench
