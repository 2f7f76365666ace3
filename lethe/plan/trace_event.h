#pragma once

#include <cstdint>
#include <string>

#include "lethe/plan/recompute_plan.h"

namespace lethe {

/// One moment in the life of a region (spec 3 7.3). A value; recompute/region_trace.h makes them,
/// report/recompute_trace.h draws them.
struct TraceEvent {
  enum class Kind : uint8_t {
    RunBegin,
    RunEnd,  // bytes: what it saved inside and gave up
    ReplayBegin,
    ReplayEnd,
    EarlyStop,  // the replay has all it is for: position of positions saved tensors
    Release,    // bytes: of an output, seen at the first event after its last owner let go
    Restore,    // bytes: of saved tensors and outputs that a replay brought back
    Node,       // name: the event of a layer, "L3.mb0.attn.q.end"
    Mark,       // name: anything else that has happened
  };

  Kind kind{};
  std::string name;         // of the region: "L3.mb0.sparse"
  int64_t time_ns = 0;      // of the steady clock
  int64_t thread = 0;       // 0, 1, ... in the order of their first event in this process
  int64_t live_bytes = -1;  // activations and temporaries at this moment; -1: not counted
  int64_t bytes = 0;        // see Kind
  int64_t position = 0, positions = 0;
  Trigger::Kind cause{};  // of a replay and its restore
  bool late = false;      // a restore that a reader pulled before the planned prefetch
  bool operator==(const TraceEvent&) const = default;
};

}  // namespace lethe
