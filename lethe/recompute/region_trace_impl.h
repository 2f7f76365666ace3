#pragma once

#include <string>

#include "lethe/recompute/region_trace.h"

namespace lethe {

/// Whether a trace lives.
[[nodiscard]] bool is_tracing();

/// Notes the event; time, thread and live bytes are filled in. Nothing without a trace.
void trace(TraceEvent event);

/// Notes that something begins and, however it is left, that it ends.
class [[nodiscard]] TraceSpan final {
 public:
  /// begin: RunBegin or ReplayBegin. name: outlives the span.
  TraceSpan(TraceEvent::Kind begin, const std::string& name, Trigger::Kind cause = {});
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  /// Of the end.
  void set_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  const TraceEvent::Kind end_;
  const std::string* name_;  // nullptr: nobody looks
  const Trigger::Kind cause_;
  int64_t bytes_ = 0;
};

}  // namespace lethe
