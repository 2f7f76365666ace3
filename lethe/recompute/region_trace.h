#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lethe/plan/trace_event.h"

// What the regions of a process do, moment by moment (spec 3 7.3). Off by default: a branch each.
namespace lethe {

/// While it lives, regions of all tapes and threads note what happens to them, and the names of the
/// operators that they call: where a replay differs, its error says from which operator on. One at
/// a time.
class [[nodiscard]] RegionTrace final {
 public:
  /// Holds at most `most_events`, about 100 bytes each, until take(); later ones are counted only.
  /// Throws ConfigError: another trace lives.
  explicit RegionTrace(size_t most_events = size_t{1} << 20);
  ~RegionTrace();
  RegionTrace(const RegionTrace&) = delete;
  RegionTrace& operator=(const RegionTrace&) = delete;

  /// What was noted since the last call; of one thread in the order of time.
  [[nodiscard]] std::vector<TraceEvent> take();

  /// Events that found no room, since the beginning.
  [[nodiscard]] int64_t dropped() const;
};

/// Notes that something has happened. Nothing without a trace.
void trace_mark(std::string_view name);

}  // namespace lethe
