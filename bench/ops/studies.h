#pragma once

#include <cstdint>
#include <string>

#include "bench/support/table.h"

namespace lethe::bench {

/// A question whose answer is a table with a sentence above it.
struct Study {
  std::string text;
  Table table;
};

/// How sparse attention gains from every further core up to `threads`, against what the
/// multiply-add peak gains in the same minute. repeats: of the interleaved runs, the median counts.
[[nodiscard]] Study attention_scaling(int threads, int64_t repeats);

/// Time per token of one CSA layer of the benchmark model, forward and backward, from S = 2048 to
/// `longest`, against the FLOPs of its formula (spec 2-foundations 5.2). config_path: that model's
/// config.json.
[[nodiscard]] Study csa_layer_growth(const std::string& config_path, int64_t longest);

}  // namespace lethe::bench
