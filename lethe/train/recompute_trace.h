#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lethe/core/live_blocks.h"
#include "lethe/io/line_file.h"
#include "lethe/plan/make_plan.h"
#include "lethe/plan/trace_event.h"
#include "lethe/recompute/recompute.h"
#include "lethe/recompute/region_trace.h"
#include "lethe/report/recompute_rows.h"

namespace lethe {

/// What is resident now besides parameters, gradients and optimizer state, in rows of equal layer,
/// producer, shape, dtype and category; the largest first. Blocks from before the watch are rows
/// of the producer "before the watch", of unknown count 0.
[[nodiscard]] report::Census take_census(const BlockWatch& watch);

struct RecomputeTraceOptions {
  int64_t first_step = 2;  // the first to be traced: the one before fills caches
  int64_t num_steps = 2;   // 0: no census, no trace
  int64_t rank = 0;        // of the process, for the trace
};

/// What recompute does in a run, for people and programs. In the folder of the run:
///   recompute.jsonl       a line per region and step (report::region_lines)
///   census.jsonl          of each traced step, the census at the end of its first forward
///   recompute-trace.json  the traced steps as a Chrome trace
/// Of a step that is there twice, since a run went on from a checkpoint before it, the later lines
/// count. Costs nothing outside of the traced steps but the lines. Failures to write are DataError.
/// Not thread-safe; at most one traces at a time.
class RecomputeTrace final {
 public:
  /// subject, plan: of the run; an empty plan has no regions, census and trace are as useful.
  RecomputeTrace(const std::filesystem::path& folder,
                 const PlanSubject& subject,
                 const RecomputePlan& plan,
                 RecomputeTraceOptions options = {});

  /// Before the step's first tensor is made. ConfigError: another trace or watch lives.
  void begin_step(int64_t step);
  /// Behind each forward, before its backward.
  void end_forward();
  /// regions: of all micro-batches (Tape::report()), bytes as of the end of forward.
  void end_step(std::span<const RegionReport> regions);

 private:
  [[nodiscard]] bool is_traced(int64_t step) const;
  [[nodiscard]] report::RegionRow row_of(const RegionReport& region) const;

  std::filesystem::path folder_;
  RecomputeTraceOptions options_;
  std::map<std::string, std::vector<std::string>> holders_;  // "L3.sparse": nodes
  LineFile regions_;
  std::optional<LineFile> census_;
  int64_t step_ = 0;
  std::optional<BlockWatch> watch_;  // until the census of the step
  std::optional<RegionTrace> trace_;
  std::vector<TraceEvent> events_;  // of the traced steps so far
};

}  // namespace lethe
