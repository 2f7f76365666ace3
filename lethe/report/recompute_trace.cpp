#include "lethe/report/recompute_trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lethe::report {
namespace {

using Json = nlohmann::ordered_json;
using Kind = TraceEvent::Kind;

const char* cause_text(Trigger::Kind cause) {
  switch (cause) {
    case Trigger::Kind::Pull:
      return "pull";
    case Trigger::Kind::OnGradOf:
      return "prefetch";
    case Trigger::Kind::Explicit:
      return "explicit";
  }
  return "unknown";
}

const char* category_of(Kind kind) {
  switch (kind) {
    case Kind::RunBegin:
    case Kind::RunEnd:
      return "run";
    case Kind::ReplayBegin:
    case Kind::ReplayEnd:
      return "replay";
    case Kind::EarlyStop:
      return "early_stop";
    case Kind::Release:
      return "release";
    case Kind::Restore:
      return "restore";
    case Kind::Node:
      return "node";
    case Kind::Mark:
      return "mark";
  }
  return "unknown";
}

// The JSON of one trace while its events are read in the order of time.
class Writer {
 public:
  Writer(int64_t rank, int64_t first_ns) : rank_(rank), first_ns_(first_ns) {}

  void name_track(const char* what, int64_t thread, const std::string& name) {
    out_.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", rank_}, {"tid", thread}, {"args", {{"name", name}}}});
  }

  void add(const TraceEvent& event) {
    switch (event.kind) {
      case Kind::RunBegin:
      case Kind::ReplayBegin:
        open_[event.thread].push_back(&event);
        break;
      case Kind::RunEnd:
      case Kind::ReplayEnd:
        close(event);
        break;
      default:
        add_instant(event);
    }
    if (event.live_bytes >= 0) add_counter(event);
  }

  /// Ends what is open at the time of the last event.
  Json finish(int64_t last_ns) {
    for (auto& [thread, begins] : open_)
      for (; !begins.empty(); begins.pop_back()) add_span(*begins.back(), last_ns, Json::object());
    return std::move(out_);
  }

 private:
  [[nodiscard]] double us(int64_t time_ns) const {
    return static_cast<double>(time_ns - first_ns_) / 1000.0;
  }

  // Spans nest on a thread. The events of an inner one may have found no room.
  void close(const TraceEvent& end) {
    auto& begins = open_[end.thread];
    const Kind wanted = end.kind == Kind::RunEnd ? Kind::RunBegin : Kind::ReplayBegin;
    const auto begin = std::find_if(begins.rbegin(), begins.rend(), [&](const TraceEvent* b) {
      return b->kind == wanted && b->name == end.name;
    });
    if (begin == begins.rend()) return;
    const TraceEvent& opened = **begin;
    while (begins.back() != &opened) {
      add_span(*begins.back(), end.time_ns, Json::object());
      begins.pop_back();
    }
    begins.pop_back();
    Json args = Json::object();
    if (end.kind == Kind::RunEnd)
      args["given_up_bytes"] = end.bytes;
    else
      args["cause"] = cause_text(end.cause);
    add_span(opened, end.time_ns, std::move(args));
  }

  void add_span(const TraceEvent& begin, int64_t end_ns, Json args) {
    out_.push_back({{"name", begin.name},
                    {"cat", category_of(begin.kind)},
                    {"ph", "X"},
                    {"ts", us(begin.time_ns)},
                    {"dur", static_cast<double>(end_ns - begin.time_ns) / 1000.0},
                    {"pid", rank_},
                    {"tid", begin.thread},
                    {"args", std::move(args)}});
  }

  void add_instant(const TraceEvent& event) {
    Json args = Json::object();
    if (event.kind == Kind::Release || event.kind == Kind::Restore) args["bytes"] = event.bytes;
    if (event.kind == Kind::Restore) {
      args["cause"] = cause_text(event.cause);
      args["late"] = event.late;
    }
    if (event.kind == Kind::EarlyStop) {
      args["position"] = event.position;
      args["positions"] = event.positions;
    }
    out_.push_back({{"name", event.name},
                    {"cat", category_of(event.kind)},
                    {"ph", "i"},
                    {"s", event.kind == Kind::Mark ? "p" : "t"},
                    {"ts", us(event.time_ns)},
                    {"pid", rank_},
                    {"tid", event.thread},
                    {"args", std::move(args)}});
  }

  void add_counter(const TraceEvent& event) {
    out_.push_back({{"name", "activations"},
                    {"ph", "C"},
                    {"ts", us(event.time_ns)},
                    {"pid", rank_},
                    {"tid", event.thread},
                    {"args", {{"bytes", event.live_bytes}}}});
  }

  int64_t rank_, first_ns_;
  std::map<int64_t, std::vector<const TraceEvent*>> open_;  // by thread, the innermost last
  Json out_ = Json::array();
};

}  // namespace

std::string recompute_trace_json(std::span<const TraceEvent> events, int64_t rank) {
  std::vector<TraceEvent> sorted(events.begin(), events.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.time_ns < b.time_ns;
  });
  Writer writer(rank, sorted.empty() ? 0 : sorted.front().time_ns);
  writer.name_track("process_name", 0, fmt::format("rank {}", rank));
  std::set<int64_t> threads;
  for (const TraceEvent& event : sorted) threads.insert(event.thread);
  for (const int64_t thread : threads)
    writer.name_track("thread_name", thread, fmt::format("thread {}", thread));
  for (const TraceEvent& event : sorted) writer.add(event);
  Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", Json::array()}};
  trace["traceEvents"] = writer.finish(sorted.empty() ? 0 : sorted.back().time_ns);
  return trace.dump() + "\n";
}

}  // namespace lethe::report
