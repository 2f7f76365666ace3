#pragma once

#include <optional>
#include <vector>

#include "lethe/recompute/layer_tape.h"
#include "lethe/train/run_record.h"

namespace lethe {

/// Recompute of one micro-batch: its tape, and what the report of the step learns from it. Where
/// nothing is recomputed it is nothing: no tape is made, and the engine is not touched.
class MicroBatchTape final {
 public:
  /// plan: null or empty = nothing is recomputed; it outlives the graph.
  MicroBatchTape(const RecomputePlan* plan, int64_t micro_batch);

  /// For the model's forward.
  [[nodiscard]] RecomputePass pass();

  /// Between forward and backward, when the saved bytes are at their most: takes the bytes.
  void forward_done();

  /// After backward: takes what was replayed and adds everything to the report. Throws
  /// RecomputeError [DC3] where the plan has checks and a region was replayed more than once.
  void backward_done(std::optional<RecomputeReport>& report);

 private:
  const RecomputePlan* plan_;
  int64_t micro_batch_;
  std::optional<Tape> tape_;
  std::vector<RegionReport> regions_;  // as of the end of forward
};

/// Where the plan has checks: throws RecomputeError [DC4] if a region of a step is still there. To
/// be called between two steps.
void expect_no_regions(const RecomputePlan* plan);

}  // namespace lethe
