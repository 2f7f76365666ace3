#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "recompute/nets.h"
#include "support/expect_error.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/core/live_blocks.h"
#include "lethe/recompute/layer_tape.h"
#include "lethe/recompute/region_trace.h"
#include "lethe/recompute/region_trace_impl.h"

// Counts what this thread asks of the heap, so that tests can say: nothing.
namespace {

thread_local int64_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* const block = std::malloc(size)) return block;
  throw std::bad_alloc();
}

void operator delete(void* block) noexcept {
  std::free(block);
}

void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}

// What regions tell of themselves, moment by moment (spec 3 7.3).
namespace lethe {
namespace {

using Kind = TraceEvent::Kind;
using test::NetMode;
using test::random_leaf;

class RegionTraceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_byte_accounting(); }
};

std::vector<Kind> kinds_of(const std::vector<TraceEvent>& events) {
  std::vector<Kind> kinds;
  for (const TraceEvent& event : events) kinds.push_back(event.kind);
  return kinds;
}

const TraceEvent& find(const std::vector<TraceEvent>& events, Kind kind) {
  for (const TraceEvent& event : events)
    if (event.kind == kind) return event;
  throw std::runtime_error("no such event");
}

/// A region whose output is read twice, restored by a hook or by a reader that comes before it.
std::vector<TraceEvent> events_of_a_released_output(bool early_reader) {
  RegionTrace trace;
  const at::Tensor x = random_leaf({1000});
  Tape tape;
  const TapeScope scope(tape);
  at::Tensor y = tape.run(
      test::released("q"), [](const at::Tensor& t) { return t.exp(); }, x);
  at::Tensor z = y * y;
  tape.restore_at(z, {"q"});
  at::Tensor loss = z.sum();
  if (early_reader) loss = loss + y.pow(3).sum();
  y.reset();
  z.reset();
  tape.event("q.end");
  loss.backward();
  return trace.take();
}

TEST_F(RegionTraceTest, TellsTheLifeOfARegionInOrder) {
  install_byte_accounting();
  const auto events = events_of_a_released_output(false);
  EXPECT_EQ(kinds_of(events),
            (std::vector<Kind>{Kind::RunBegin,
                               Kind::RunEnd,
                               Kind::Release,
                               Kind::ReplayBegin,
                               Kind::Restore,
                               Kind::ReplayEnd}));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].name, "q");
    EXPECT_EQ(events[i].thread, events[0].thread);
    EXPECT_GE(events[i].time_ns, events[i - (i > 0 ? 1 : 0)].time_ns);
  }
  EXPECT_EQ(events[2].bytes, 8000);
  // The output is gone; the loss is there.
  EXPECT_EQ(events[2].live_bytes, events[1].live_bytes - 8000 + 8);
  EXPECT_EQ(events[4].bytes, 8000);
  EXPECT_GE(events[4].live_bytes, events[2].live_bytes + 8000);
}

TEST_F(RegionTraceTest, TellsWhatBroughtAValueBackAndWhetherItWasLate) {
  for (const bool early_reader : {false, true}) {
    const auto events = events_of_a_released_output(early_reader);
    const TraceEvent& restore = find(events, Kind::Restore);
    EXPECT_EQ(restore.cause, early_reader ? Trigger::Kind::Pull : Trigger::Kind::OnGradOf);
    EXPECT_EQ(restore.late, early_reader);
    EXPECT_EQ(find(events, Kind::ReplayBegin).cause, restore.cause);
  }
  RegionTrace trace;
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      "r", [](const at::Tensor& t) { return t.exp() + 1; }, random_leaf({4}));
  tape.restore("r");
  EXPECT_EQ(find(trace.take(), Kind::Restore).cause, Trigger::Kind::Explicit);
}

TEST_F(RegionTraceTest, TellsWhereAReplayStopsEarly) {
  RegionTrace trace;
  Tape tape;
  const at::Tensor y = tape.run(
      "r", [](const at::Tensor& t) { return (t.exp() + 1).sin() + 1; }, random_leaf({4}));
  y.sum().backward();
  const auto events = trace.take();
  const TraceEvent& stop = find(events, Kind::EarlyStop);
  EXPECT_EQ(stop.position, 2);  // exp saves its result, sin its argument
  EXPECT_EQ(stop.positions, 2);
  EXPECT_EQ(tape.report()[0].early_stops, 1);
  // Both went when forward had left the region.
  EXPECT_EQ(find(events, Kind::RunEnd).bytes, 2 * 4 * 8);
}

TEST_F(RegionTraceTest, AnExplicitReleaseTellsItsBytes) {
  RegionTrace trace;
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      test::released("r"), [](const at::Tensor& t) { return t.exp(); }, random_leaf({4}));
  EXPECT_EQ(tape.release("r"), 32);
  EXPECT_EQ(find(trace.take(), Kind::Release).bytes, 32);
}

TEST_F(RegionTraceTest, AReplayThatFailsEndsInTheTraceToo) {
  RegionTrace trace;
  Tape tape;
  const at::Tensor y = tape.run(
      "r",
      [](const at::Tensor& t) {
        if (in_replay()) throw std::runtime_error("broken");
        return t.exp() + 1;
      },
      random_leaf({4}));
  EXPECT_ANY_THROW(y.sum().backward());
  EXPECT_EQ(kinds_of(trace.take()),
            (std::vector<Kind>{Kind::RunBegin, Kind::RunEnd, Kind::ReplayBegin, Kind::ReplayEnd}));
}

TEST_F(RegionTraceTest, ChangesNoBitAndSpansNest) {
  const test::Net net = test::make_net(at::kFloat, 2);
  const at::Tensor x = at::randn({8, test::kNetWidth});
  for (const NetMode mode : test::kNetModes) {
    const test::NetStep plain = test::net_step(net, x, mode);
    RegionTrace trace;
    const BlockWatch watch;
    test::expect_same_step(test::net_step(net, x, mode), plain, test::name_of(mode));
    std::vector<std::string> open;
    for (const TraceEvent& event : trace.take()) {
      if (event.kind == Kind::RunBegin || event.kind == Kind::ReplayBegin)
        open.push_back(event.name);
      if (event.kind != Kind::RunEnd && event.kind != Kind::ReplayEnd) continue;
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), event.name);
      open.pop_back();
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(trace.dropped(), 0);
  }
}

TEST_F(RegionTraceTest, OneTraceMayLiveAndItsRoomIsBounded) {
  RegionTrace trace(2);
  test::expect_error<ConfigError>([] { const RegionTrace second; },
                                  {"region trace", "one trace may live", "got a second"});
  for (const char* name : {"a", "b", "c"}) trace_mark(name);
  EXPECT_EQ(trace.dropped(), 1);
  const auto events = trace.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].name, "b");
  trace_mark("d");
  EXPECT_EQ(trace.take().size(), 1u);
}

TEST_F(RegionTraceTest, ThreadsHaveNumbers) {
  RegionTrace trace;
  trace_mark("here");
  std::thread([] { trace_mark("there"); }).join();
  const auto events = trace.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events[0].thread, events[1].thread);
}

TEST_F(RegionTraceTest, WhileOffItAllocatesNothing) {
  const at::Tensor t = at::empty({3});
  const std::string name(64, 'x');  // longer than what a string holds inside
  const LayerTape layer;
  const auto touch = [&] {
    const TraceSpan span(Kind::RunBegin, name);
    const ProducerTag tag(name, name);
    trace_mark(name);
    describe_block(t);
    layer.event(Event::AttnQEnd, t);
  };
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) touch();
  EXPECT_EQ(allocations, before);
  const RegionTrace trace;
  touch();
  EXPECT_GT(allocations, before);
}

TEST_F(RegionTraceTest, AfterwardsAStepAllocatesAsBefore) {
  const test::Net net = test::make_net(at::kFloat, 2);
  const at::Tensor x = at::randn({8, test::kNetWidth});
  const auto count = [&] {
    const int64_t before = allocations;
    (void)test::net_step(net, x, NetMode::Nested);
    return allocations - before;
  };
  count();
  const int64_t plain = count();
  {
    RegionTrace trace;
    const BlockWatch watch;
    EXPECT_GT(count(), plain);
  }
  EXPECT_EQ(count(), plain);
}

TEST_F(RegionTraceTest, AHundredTracedStepsLeaveNothing) {
  install_byte_accounting();
  const test::Net net = test::make_net(at::kFloat, 2);
  const at::Tensor x = at::randn({8, test::kNetWidth});
  RegionTrace trace;
  size_t events = 0;
  int64_t live = 0, used = 0;
  for (int i = 0; i < 104; ++i) {
    {
      const BlockWatch watch;
      (void)test::net_step(net, x, NetMode::Nested);
      EXPECT_TRUE(watch.live().blocks.empty());
    }
    const int64_t before = allocations;
    const size_t now = trace.take().size();
    if (i == 4) events = now, live = bytes().live, used = allocations - before;
    if (i <= 4) continue;
    ASSERT_EQ(now, events);
    ASSERT_EQ(bytes().live, live);
    ASSERT_EQ(allocations - before, used);
    ASSERT_EQ(recompute_objects().regions, 0);
    ASSERT_EQ(recompute_objects().saved, 0);
  }
}

}  // namespace
}  // namespace lethe
