#pragma once

#include <cstdint>
#include <string>

namespace lethe {

/// Whether the inputs of layers wait for their backward in a host tier, and how (spec 5 6;
/// command-line spec 7.4). A value: resolved once, then read-only.
struct SwapConfig {
  bool layer_input = false;
  int64_t offload_budget_mb = 4096;  // MiB of the host tier, all micro-batches under way together
  std::string offload_folder;        // of the tier's file; empty = memory
  int64_t prefetch_distance = 1;     // layers ahead of the one in backward; 0 = none
  int64_t min_bytes = 4096;          // smaller layer inputs stay
  bool operator==(const SwapConfig&) const = default;
};

}  // namespace lethe
