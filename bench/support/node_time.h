#pragma once

#include <map>
#include <tuple>

#include "bench/support/peaks.h"
#include "bench/support/step_work.h"

namespace lethe::bench {

/// The least seconds of some nodes on a machine.
struct NodeTime {
  double flops = 0, bytes = 0;
  double ideal = 0;    // the larger of FLOPs at the multiply-add peak and bytes at the triad's rate
  double with_mm = 0;  // the same with every plain product at the rate of at::mm for its shape

  NodeTime& operator+=(const NodeTime& other);
};

/// Rates of at::mm by shape; each is measured once, the best of at least 3 calls and up to 0.2 s.
class GemmRates final {
 public:
  [[nodiscard]] double seconds(const Gemm& g);

 private:
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> best_;
};

[[nodiscard]] NodeTime node_time(const NodeWork& node, const Peaks& peaks, GemmRates& rates);

/// Of all nodes together.
[[nodiscard]] NodeTime total_time(const std::vector<NodeWork>& nodes,
                                  const Peaks& peaks,
                                  GemmRates& rates);

}  // namespace lethe::bench
