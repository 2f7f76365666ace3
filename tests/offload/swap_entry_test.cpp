#include "lethe/offload/swap_entry.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "offload/swap_parts.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

// One storage out and back: rows F2 to F5 of the test matrix (spec 5 10).
namespace lethe {
namespace {

using test::expect_error;
using test::TestTier;
using Kind = SwapRestore::Kind;

constexpr SwapState kStates[] = {SwapState::Device,
                                 SwapState::D2hIssued,
                                 SwapState::Host,
                                 SwapState::H2dIssued,
                                 SwapState::Restored,
                                 SwapState::Removed,
                                 SwapState::Failed};

// An entry of `t` that was led to this state by legal calls.
SwapEntry entry_in(SwapState state, const at::Tensor& t, const TestTier& tier) {
  SwapEntry entry("L3.mb0", t, tier.backend);
  const auto step = [&](SwapState to) {
    switch (to) {
      case SwapState::D2hIssued:
        return entry.issue_out();
      case SwapState::Host:
        return (void)entry.release();
      case SwapState::H2dIssued:
        return (void)entry.prefetch();
      case SwapState::Restored:
        return (void)entry.restore();
      case SwapState::Removed:
        return entry.remove();
      default:
        return;
    }
  };
  if (state == SwapState::Failed) {
    entry.fail("a test wants it");
    return entry;
  }
  for (const SwapState to : kStates) {
    step(to);
    EXPECT_EQ(entry.state(), to);
    if (to == state) break;
  }
  return entry;
}

TEST(SwapEntry, F2EveryLegalEdgeLeadsToItsState) {
  TestTier tier;
  const at::Tensor t = at::rand({100});
  const at::Tensor expected = t.clone();
  for (const SwapState state : kStates) {
    SwapEntry entry = entry_in(state, t, tier);
    EXPECT_EQ(entry.state(), state) << state_text(state);
    if (state != SwapState::Removed && state != SwapState::Failed) (void)entry.restore();
    test::expect_bitwise(t, expected, std::string(state_text(state)));
  }
  SwapEntry cancelled = entry_in(SwapState::D2hIssued, t, tier);
  (void)cancelled.cancel();
  EXPECT_EQ(cancelled.state(), SwapState::Device);
  cancelled.issue_out();
  (void)cancelled.restore();
  EXPECT_EQ(cancelled.state(), SwapState::Device);
  cancelled.remove();
  EXPECT_EQ(cancelled.state(), SwapState::Removed);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, F2EveryIllegalEdgeIsRefusedWithNameStateAndWayOut) {
  struct Call {
    const char* name;
    std::function<void(SwapEntry&)> run;
    std::vector<SwapState> allowed;
  };

  const std::vector<SwapState> usable(std::begin(kStates), std::begin(kStates) + 5);
  const Call calls[] = {
      {"issue_out", [](SwapEntry& e) { e.issue_out(); }, {SwapState::Device}},
      {"release", [](SwapEntry& e) { (void)e.release(); }, {SwapState::D2hIssued}},
      {"cancel", [](SwapEntry& e) { (void)e.cancel(); }, {SwapState::D2hIssued}},
      {"remove", [](SwapEntry& e) { e.remove(); }, {SwapState::Device, SwapState::Restored}},
      {"prefetch", [](SwapEntry& e) { (void)e.prefetch(); }, usable},
      {"restore", [](SwapEntry& e) { (void)e.restore(); }, usable}};
  TestTier tier;
  int refused = 0;
  for (const SwapState state : kStates)
    for (const Call& call : calls) {
      const at::Tensor t = at::rand({100});
      SwapEntry entry = entry_in(state, t, tier);
      if (std::count(call.allowed.begin(), call.allowed.end(), state) > 0) {
        EXPECT_NO_THROW(call.run(entry)) << call.name << " in " << state_text(state);
        continue;
      }
      ++refused;
      const std::string got = fmt::format("got one in {}", state_text(state));
      expect_error<SwapError>([&] { call.run(entry); },
                              {"swap L3.mb0 [state]", call.name, got.c_str(), "makes entries of"});
      EXPECT_EQ(entry.state(), state);  // a refusal changes nothing
    }
  EXPECT_EQ(refused, 7 * 6 - 3 - 2 - 5 - 5);
}

TEST(SwapEntry, AFailedEntryShowsItsReason) {
  TestTier tier;
  for (const SwapState state : kStates) {
    SwapEntry entry = entry_in(state, at::rand({100}), tier);
    entry.fail("the step was given up");
    EXPECT_EQ(entry.state(), SwapState::Failed);
    expect_error<SwapError>([&] { (void)entry.restore(); }, {"Failed (the step was given up)"});
  }
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, TheAccountingSeesEveryByteGoAndComeBack) {
  install_byte_accounting();
  TestTier tier;
  const at::Tensor t = at::rand({1000, 7});
  const int64_t before = bytes().live;
  SwapEntry entry("L0.mb0", t, tier.backend);
  EXPECT_EQ(entry.bytes(), 28000);
  entry.issue_out();
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(tier.backend->report().host_bytes, 28000);
  (void)entry.release();
  EXPECT_EQ(bytes().live, before - 28000);
  const int64_t activations = bytes().live_of(ByteCategory::Activations);
  EXPECT_TRUE(entry.prefetch());
  EXPECT_FALSE(entry.prefetch());
  EXPECT_EQ(bytes().live, before);
  (void)entry.restore();
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(bytes().live_of(ByteCategory::Activations), activations + 28000);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, EveryAliasSeesTheBytesAndNoVersionChanges) {
  TestTier tier;
  const at::Tensor t = at::rand({8, 8});
  const at::Tensor view = t.view({64}), detached = t.detach(), expected = t.clone();
  const int64_t version = t._version();
  SwapEntry entry = entry_in(SwapState::Host, t, tier);
  EXPECT_TRUE(entry.owns(view) && entry.owns(detached) && !entry.owns(expected));
  expect_error<c10::Error>([&] { (void)detached.sum(); },
                           {"swap L3.mb0 [released]", "in the host tier"});
  (void)entry.restore();
  test::expect_bitwise(view.view({8, 8}), expected, "view");
  test::expect_bitwise(detached, expected, "detached");
  EXPECT_EQ(t._version(), version);
}

// The copy back must not begin before the copy out has ended: it would read what is not there yet.
TEST(SwapEntry, F3ARestoreDuringTheCopyOutKeepsTheDevicesBytes) {
  TestTier tier;
  const at::Tensor t = at::rand({1000});
  const at::Tensor expected = t.clone();
  const void* const place = t.const_data_ptr();
  tier.store->close();
  SwapEntry entry = entry_in(SwapState::D2hIssued, t, tier);
  EXPECT_FALSE(entry.prefetch());
  const test::OpenLater opening(*tier.store);
  const SwapRestore restore = entry.restore();
  EXPECT_EQ(restore.kind, Kind::Cancelled);
  EXPECT_GT(restore.wait_ns, 0);
  EXPECT_EQ(tier.store->reads, 0);
  EXPECT_EQ(t.const_data_ptr(), place);
  test::expect_bitwise(t, expected, "tensor");
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, AReleaseWaitsForItsCopyAndARestoreForItsOwn) {
  TestTier tier;
  tier.store->delay_ms = 20;
  const at::Tensor t = at::rand({1000});
  const at::Tensor expected = t.clone();
  SwapEntry entry = entry_in(SwapState::D2hIssued, t, tier);
  EXPECT_GT(entry.release(), 0);
  EXPECT_EQ(tier.store->writes, 1);
  const SwapRestore late = entry.restore();
  EXPECT_EQ(late.kind, Kind::CopiedIn);
  EXPECT_FALSE(late.prefetched);
  EXPECT_GT(late.wait_ns, 10'000'000);
  test::expect_bitwise(t, expected, "tensor");
}

TEST(SwapEntry, F4ASecondRestoreIsANoOpAndOneAfterRemoveAnError) {
  TestTier tier;
  const at::Tensor t = at::rand({100});
  SwapEntry entry = entry_in(SwapState::Restored, t, tier);
  const void* const place = t.const_data_ptr();
  EXPECT_EQ(entry.restore().kind, Kind::Nothing);
  EXPECT_EQ(t.const_data_ptr(), place);
  EXPECT_EQ(tier.store->reads, 1);
  entry.remove();
  expect_error<SwapError>([&] { (void)entry.restore(); },
                          {"L3.mb0 [state]", "restore needs", "got one in Removed"});
}

TEST(SwapEntry, F5EntriesAreTheirOwnWhateverTheirValuesAndTheOrder) {
  TestTier tier;
  std::vector<at::Tensor> tensors;
  std::vector<SwapEntry> entries;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(at::full({64}, i < 4 ? 1.0 : i));  // four of equal values
    entries.push_back(entry_in(SwapState::Host, tensors.back(), tier));
  }
  for (const size_t i : {3U, 0U, 5U, 2U, 4U, 1U}) {
    (void)entries[i].restore();
    for (size_t j = 0; j < entries.size(); ++j)
      EXPECT_EQ(entries[j].owns(tensors[i]), i == j) << i << " " << j;
    entries[i].remove();
    EXPECT_TRUE(at::equal(tensors[i], at::full({64}, i < 4 ? 1.0 : static_cast<double>(i))));
    for (size_t j = 0; j < entries.size(); ++j)
      EXPECT_EQ(entries[j].state() == SwapState::Removed, tensors[j].storage().nbytes() > 0);
  }
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, ATensorThatIsWrittenToWhileItIsCopiedIsRefusedAndKeepsItsValues) {
  TestTier tier;
  const at::Tensor t = at::full({100}, 1.0);
  tier.store->close();
  SwapEntry entry = entry_in(SwapState::D2hIssued, t, tier);
  t.add_(1);
  tier.store->open();
  expect_error<SwapError>([&] { (void)entry.release(); },
                          {"swap L3.mb0 [unchanged]", "got version 2 of", "where version 1 of"});
  EXPECT_EQ(entry.state(), SwapState::Failed);
  EXPECT_TRUE(at::equal(t, at::full({100}, 2.0)));
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, ACopyThatFailsNamesTheEntryAndTheCause) {
  TestTier tier;
  const at::Tensor t = at::rand({100});
  const at::Tensor expected = t.clone();
  tier.store->fail_writes = true;
  SwapEntry out = entry_in(SwapState::D2hIssued, t, tier);
  expect_error<DataError>([&] { (void)out.release(); },
                          {"swap L3.mb0 [copy]", "400 bytes must go out to", "as it was told"});
  EXPECT_EQ(out.state(), SwapState::Failed);
  test::expect_bitwise(t, expected, "the device's bytes stay");
  tier.store->fail_writes = false;

  SwapEntry in = entry_in(SwapState::Host, t, tier);
  tier.store->fail_reads = true;
  expect_error<DataError>([&] { (void)in.restore(); },
                          {"swap L3.mb0 [copy]", "must go back from", "as it was told"});
  EXPECT_EQ(in.state(), SwapState::Failed);
  expect_error<c10::Error>([&] { (void)t.sum(); }, {"swap L3.mb0 [released]"});
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, CheckedEntriesFindBytesThatAreNotThoseThatWent) {
  TestTier tier;
  const at::Tensor t = at::rand({100});
  SwapEntry entry("L3.mb0", t, tier.backend, /*checked=*/true);
  entry.issue_out();
  (void)entry.release();
  tier.store->spoil = true;
  expect_error<SwapError>([&] { (void)entry.restore(); },
                          {"swap L3.mb0 [checksum]", "the 400 bytes that come back"});
  EXPECT_EQ(entry.state(), SwapState::Failed);
}

TEST(SwapEntry, AnEntryThatGoesInAnyStateLeavesNothingBehind) {
  install_byte_accounting();
  TestTier tier;
  tier.store->delay_ms = 2;
  const int64_t before = bytes().live;
  for (const SwapState state : kStates) {
    const at::Tensor t = at::rand({100});
    const SwapEntry entry = entry_in(state, t, tier);
  }
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
  EXPECT_EQ(tier.backend->report().host_blocks, 0);
}

TEST(SwapEntry, TheStorageLivesUntilItsCopyHasEnded) {
  TestTier tier;
  tier.store->close();
  at::Tensor t = at::full({1000}, 3.0);
  SwapEntry entry = entry_in(SwapState::D2hIssued, t, tier);
  t.reset();
  tier.store->open();
  (void)entry.release();
  // Nobody has the tensor: there is nothing to bring back.
  EXPECT_EQ(entry.restore().kind, Kind::Dropped);
  EXPECT_EQ(entry.state(), SwapState::Removed);
  EXPECT_EQ(tier.store->reads, 0);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapEntry, ATierWithoutRoomLeavesTheEntryAsItWas) {
  TestTier tier(4096);
  const at::Tensor a = at::rand({1000}), b = at::rand({1000});
  SwapEntry first = entry_in(SwapState::Host, a, tier);
  SwapEntry second("L4.mb0", b, tier.backend);
  expect_error<OutOfArena>([&] { second.issue_out(" (of a test)"); },
                           {"swap L4.mb0 (of a test) [budget]", "in a store of a test"});
  EXPECT_EQ(second.state(), SwapState::Device);
  (void)first.restore();
  second.issue_out();
  EXPECT_EQ(second.state(), SwapState::D2hIssued);
}

}  // namespace
}  // namespace lethe
