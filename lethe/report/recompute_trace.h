#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lethe/plan/trace_event.h"

namespace lethe::report {

/// The events as a Chrome trace, for chrome://tracing and Perfetto (spec 3 7.3). A JSON object with
///   "displayTimeUnit"  "ms"
///   "traceEvents"      objects with "ph", "pid" = rank, "tid" = thread of the event, "ts" in
///                      microseconds since the first event:
///     M  names of process and threads
///     X  a run or replay of a region with its "dur"; "cat" run or replay; replay has its cause
///     i  release, restore, early stop, node, mark
///     C  "activations": {"bytes": B} for each event that counted them
/// A run or replay that the events do not show the end of lasts to the last event; one without its
/// begin is left out. Events may come in any order; those of a thread are taken by time.
/// Pure: same events, same bytes.
[[nodiscard]] std::string recompute_trace_json(std::span<const TraceEvent> events, int64_t rank);

}  // namespace lethe::report
