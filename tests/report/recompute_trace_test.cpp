#include "lethe/report/recompute_trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/report/recompute_rows.h"

namespace lethe::report {
namespace {

using Json = nlohmann::json;
using Kind = TraceEvent::Kind;

TraceEvent at(Kind kind, const std::string& name, int64_t time_ns, int64_t live = 100) {
  return {.kind = kind, .name = name, .time_ns = time_ns, .live_bytes = live};
}

std::vector<Json> events_of(const std::vector<TraceEvent>& events, int64_t rank = 3) {
  return Json::parse(recompute_trace_json(events, rank))["traceEvents"].get<std::vector<Json>>();
}

std::vector<Json> with_phase(const std::vector<Json>& events, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : events)
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

/// A region that runs, is released, replayed by a nested pull on two threads, and marks.
std::vector<TraceEvent> a_life() {
  std::vector<TraceEvent> events{
      at(Kind::Mark, "step 1", 1'000'000),
      at(Kind::RunBegin, "L0.mb0.q", 1'002'000, 10),
      at(Kind::RunEnd, "L0.mb0.q", 1'005'500, 40),
      at(Kind::Node, "L0.mb0.attn.q.end", 1'006'000),
      at(Kind::Release, "L0.mb0.q", 1'006'250, 20),
      at(Kind::ReplayBegin, "L0.mb0.o", 1'010'000),
      at(Kind::ReplayBegin, "L0.mb0.q", 1'011'000),
      at(Kind::EarlyStop, "L0.mb0.q", 1'012'000),
      at(Kind::Restore, "L0.mb0.q", 1'012'500, 60),
      at(Kind::ReplayEnd, "L0.mb0.q", 1'013'000),
      at(Kind::ReplayEnd, "L0.mb0.o", 1'014'000, -1),
  };
  events[2].bytes = 7;
  events[4].bytes = 30;
  events[7].position = 4, events[7].positions = 9;
  events[8].bytes = 30, events[8].late = true;
  for (size_t i = 5; i < events.size(); ++i) {
    events[i].thread = 2;
    events[i].cause = i == 5 || i == 10 ? Trigger::Kind::OnGradOf : Trigger::Kind::Pull;
  }
  return events;
}

// The Trace Event Format: which fields an event of each phase must have, and their types.
void expect_valid(const Json& event) {
  SCOPED_TRACE(event.dump());
  static const std::map<std::string, std::set<std::string>> kRequired = {
      {"M", {"name", "ph", "pid", "tid", "args"}},
      {"X", {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}},
      {"i", {"name", "cat", "ph", "s", "ts", "pid", "tid", "args"}},
      {"C", {"name", "ph", "ts", "pid", "tid", "args"}},
  };
  const auto required = kRequired.find(event["ph"].get<std::string>());
  ASSERT_NE(required, kRequired.end());
  for (const std::string& key : required->second) ASSERT_TRUE(event.contains(key)) << key;
  EXPECT_EQ(event.size(), required->second.size());
  EXPECT_TRUE(event["name"].is_string());
  EXPECT_FALSE(event["name"].get<std::string>().empty());
  EXPECT_TRUE(event["pid"].is_number_integer());
  EXPECT_TRUE(event["tid"].is_number_integer());
  EXPECT_TRUE(event["args"].is_object());
  EXPECT_GE(event.value("ts", 0.0), 0);
  EXPECT_GE(event.value("dur", 0.0), 0);
  EXPECT_TRUE(event.value("s", "t") == "t" || event["s"] == "p");
  if (event["ph"] == "C") {
    for (const auto& [name, value] : event["args"].items()) EXPECT_TRUE(value.is_number()) << name;
  }
}

TEST(RecomputeTraceJson, EveryEventHasTheFieldsOfItsPhase) {
  const Json trace = Json::parse(recompute_trace_json(a_life(), 3));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  const auto events = trace["traceEvents"].get<std::vector<Json>>();
  std::set<std::string> phases;
  for (const Json& event : events) {
    expect_valid(event);
    EXPECT_EQ(event["pid"], 3);
    phases.insert(event["ph"].get<std::string>());
  }
  EXPECT_EQ(phases, (std::set<std::string>{"C", "M", "X", "i"}));
}

TEST(RecomputeTraceJson, RunsAndReplaysAreSpansInMicroseconds) {
  const auto spans = with_phase(events_of(a_life()), "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["name"], "L0.mb0.q");
  EXPECT_EQ(spans[0]["cat"], "run");
  EXPECT_EQ(spans[0]["ts"], 2.0);
  EXPECT_EQ(spans[0]["dur"], 3.5);
  EXPECT_EQ(spans[0]["tid"], 0);
  EXPECT_EQ(spans[0]["args"]["given_up_bytes"], 7);
  EXPECT_EQ(spans[1]["name"], "L0.mb0.q");
  EXPECT_EQ(spans[1]["cat"], "replay");
  EXPECT_EQ(spans[1]["dur"], 2.0);
  EXPECT_EQ(spans[1]["tid"], 2);
  EXPECT_EQ(spans[1]["args"]["cause"], "pull");
  EXPECT_EQ(spans[2]["name"], "L0.mb0.o");
  EXPECT_EQ(spans[2]["dur"], 4.0);
  EXPECT_EQ(spans[2]["args"]["cause"], "prefetch");
}

TEST(RecomputeTraceJson, MomentsCarryTheirFacts) {
  std::map<std::string, Json> by_category;
  for (const Json& event : with_phase(events_of(a_life()), "i"))
    by_category[event["cat"].get<std::string>()] = event;
  ASSERT_EQ(by_category.size(), 5u);
  EXPECT_EQ(by_category["release"]["args"]["bytes"], 30);
  EXPECT_EQ(by_category["restore"]["args"],
            (Json{{"bytes", 30}, {"cause", "pull"}, {"late", true}}));
  EXPECT_EQ(by_category["early_stop"]["args"], (Json{{"position", 4}, {"positions", 9}}));
  EXPECT_EQ(by_category["node"]["name"], "L0.mb0.attn.q.end");
  EXPECT_EQ(by_category["mark"]["s"], "p");
}

TEST(RecomputeTraceJson, TheCounterFollowsEveryCountedEvent) {
  const auto samples = with_phase(events_of(a_life()), "C");
  ASSERT_EQ(samples.size(), 10u);  // one event did not count
  std::vector<int64_t> bytes;
  for (const Json& sample : samples) bytes.push_back(sample["args"]["bytes"].get<int64_t>());
  EXPECT_EQ(bytes, (std::vector<int64_t>{100, 10, 40, 100, 20, 100, 100, 100, 60, 100}));
  EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end(), [](const Json& a, const Json& b) {
    return a["ts"].get<double>() < b["ts"].get<double>();
  }));
}

TEST(RecomputeTraceJson, LostBeginsAndEndsLeaveNoSpanOfWrongLength) {
  const auto spans = with_phase(events_of({at(Kind::RunEnd, "lost begin", 1000),
                                           at(Kind::RunBegin, "outer", 2000),
                                           at(Kind::RunBegin, "lost end", 3000),
                                           at(Kind::RunEnd, "outer", 5000),
                                           at(Kind::ReplayBegin, "open", 6000),
                                           at(Kind::Mark, "last", 9000)}),
                                "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["name"], "lost end");
  EXPECT_EQ(spans[0]["dur"], 2.0);
  EXPECT_EQ(spans[1]["name"], "outer");
  EXPECT_EQ(spans[1]["dur"], 3.0);
  EXPECT_EQ(spans[2]["name"], "open");
  EXPECT_EQ(spans[2]["dur"], 3.0);
}

TEST(RecomputeTraceJson, EventsOfSeveralThreadsMayComeInAnyOrder) {
  std::vector<TraceEvent> events = a_life(), moved(events.begin() + 5, events.end());
  moved.insert(moved.end(), events.begin(), events.begin() + 5);
  EXPECT_EQ(recompute_trace_json(moved, 0), recompute_trace_json(events, 0));
}

TEST(RecomputeTraceJson, NoEventsAreAnEmptyTrace) {
  const auto events = events_of({});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["ph"], "M");
}

TEST(RecomputeRows, ARegionIsALine) {
  const std::vector<RegionRow> rows{{.region = "L0.mb0.q", .slots = 1, .released = 8},
                                    {.region = "L0.mb0.oup",
                                     .forgettable = 24,
                                     .retained = 24,
                                     .retained_outputs = {"out0: somebody else holds it"},
                                     .consumers = {"attn.post"},
                                     .replays = 2,
                                     .replay_ns = 77,
                                     .kept = {{"lethe::gate", 1, 64, 5}}}};
  const std::string lines = region_lines(9, rows);
  ASSERT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  const Json second = Json::parse(lines.substr(lines.find('\n') + 1));
  EXPECT_EQ(second["step"], 9);
  EXPECT_EQ(second["region"], "L0.mb0.oup");
  EXPECT_EQ(second["retained"], 24);
  EXPECT_EQ(second["consumers"], Json::array({"attn.post"}));
  EXPECT_EQ(second["replay_ns"], 77);
  EXPECT_EQ(second["kept"][0]["call"], "lethe::gate");
  EXPECT_EQ(second["kept"][0]["bytes"], 64);
  EXPECT_EQ(region_lines(9, {}), "");
}

TEST(RecomputeRows, ACensusEndsWithItsTotal) {
  const Census census{
      .rows = {{.layer = "L0",
                .producer = "attn.q",
                .shape = "[2,4]",
                .dtype = "float32",
                .category = "activations",
                .count = 2,
                .bytes = 64},
               {.producer = "batch", .category = "temporaries", .count = 1, .bytes = 8}},
      .live = 172,
      .parameters = 70,
      .gradients = 20,
      .optimizer = 10};
  EXPECT_EQ(census.total(), 72);
  const std::string lines = census_lines(4, census);
  EXPECT_EQ(lines,
            "{\"step\":4,\"layer\":\"L0\",\"producer\":\"attn.q\",\"shape\":\"[2,4]\","
            "\"dtype\":\"float32\",\"category\":\"activations\",\"count\":2,\"bytes\":64}\n"
            "{\"step\":4,\"layer\":null,\"producer\":\"batch\",\"shape\":null,\"dtype\":null,"
            "\"category\":\"temporaries\",\"count\":1,\"bytes\":8}\n"
            "{\"step\":4,\"total\":72,\"live\":172,\"parameters\":70,\"gradients\":20,"
            "\"optimizer\":10}\n");
}

}  // namespace
}  // namespace lethe::report
