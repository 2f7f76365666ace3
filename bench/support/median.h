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

}  // namespace lethe::bench
