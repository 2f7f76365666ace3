#pragma once

#include <string>
#include <vector>

namespace lethe {

/// One source of training data and its share of the samples.
struct BlendPart {
  std::string path;
  double weight = 1;

  bool operator==(const BlendPart&) const = default;
};

/// The value of --data: one path, or "WEIGHT PATH WEIGHT PATH ..." (Megatron's form), separated by
/// spaces. A text whose first word is a number and that has more words is a blend; everything else
/// is a path, spaces included. Throws ConfigError: a weight that is not a number > 0, a weight
/// without a path, a path twice.
[[nodiscard]] std::vector<BlendPart> parse_data_blend(const std::string& text);

}  // namespace lethe
