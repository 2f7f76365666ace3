#include "lethe/offload/cpu_swap_backend.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "offload/swap_parts.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/process_threads.h"
#include "support/scratch_files.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/offload/host_arena_impl.h"

// The host tier: its room, its thread, its stores (spec 5 6.4; rows F7, F10 of the test matrix).
namespace lethe {
namespace {

using test::expect_error;
using test::TestTier;

constexpr int64_t kPage = HostArena::kPage;

std::vector<std::byte> pattern(int64_t size, int seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 13 + static_cast<size_t>(seed));
  return bytes;
}

TEST(HostArena, BlocksTakeTheFirstHoleThatFitsAndAreCountedExactly) {
  HostArena arena(4 * kPage + 100);
  EXPECT_EQ(arena.take(100), 0);
  EXPECT_EQ(arena.take(kPage + 1), kPage);
  EXPECT_EQ(arena.take(1), 3 * kPage);
  EXPECT_EQ(arena.live(), 100 + kPage + 1 + 1);
  EXPECT_EQ(arena.blocks(), 3);
  EXPECT_EQ(arena.take(1), std::nullopt);
  arena.give(0);
  arena.give(kPage);
  EXPECT_EQ(arena.largest_hole(), 3 * kPage);
  EXPECT_EQ(arena.take(2 * kPage), 0);
  EXPECT_EQ(arena.take(kPage), 2 * kPage);
  EXPECT_EQ(arena.peak(), 2 * kPage + kPage + 1);
  EXPECT_THROW(arena.give(kPage), InternalError);
}

TEST(HostArena, HolesGrowTogetherInEveryOrder) {
  std::vector<int64_t> order = {0, 1, 2, 3};
  do {
    HostArena arena(4 * kPage);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(arena.take(kPage), i * kPage);
    for (const int64_t i : order) arena.give(i * kPage);
    ASSERT_EQ(arena.largest_hole(), 4 * kPage);
    ASSERT_EQ(arena.live(), 0);
    ASSERT_EQ(arena.take(4 * kPage), 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CpuSwapBackend, ATierWithoutRoomNamesFlagBudgetAndWayOut) {
  const auto backend = make_cpu_swap_backend(int64_t{2} << 20);
  const HostBlock block = backend->alloc_host(1500000, "L0.mb0");
  expect_error<OutOfArena>([&] { (void)backend->alloc_host(700000, "L1.mb0"); },
                           {"swap L1.mb0 [budget]",
                            "in memory must fit --offload-budget-mb 2 (2.00 MiB)",
                            "got 1 blocks with 1.43 MiB",
                            "a request for 684 KiB",
                            "raise --offload-budget-mb"});
  backend->free_host(block);
  const HostBlock again = backend->alloc_host(700000, "L1.mb0");
  EXPECT_EQ(backend->report().host_bytes, 700000);
  backend->free_host(again);
  EXPECT_EQ(backend->report().host_bytes, 0);
  EXPECT_EQ(backend->report().host_blocks, 0);
  EXPECT_EQ(backend->report().host_bytes_peak, 1500000);
  expect_error<ConfigError>([] { (void)make_cpu_swap_backend(0); },
                            {"swap [budget]", "--offload-budget-mb must be >= 1, got 0 bytes"});
}

TEST(CpuSwapBackend, CopiesRunInTheOrderOfIssuing) {
  TestTier tier;
  const auto first = pattern(5000, 1), second = pattern(5000, 2);
  std::vector<std::byte> back(5000);
  const HostBlock block = tier.backend->alloc_host(5000, "a");
  tier.store->close();
  (void)tier.backend->issue_out(first.data(), block);
  const TransferId in = tier.backend->issue_in(block, back.data());
  const TransferId last = tier.backend->issue_out(second.data(), block);
  EXPECT_FALSE(tier.backend->done(in));
  tier.store->open();
  tier.backend->wait(in);
  EXPECT_EQ(back, first);
  tier.backend->wait(last);
  EXPECT_TRUE(tier.backend->done(in) && tier.backend->done(last));
  tier.backend->free_host(block);
}

TEST(CpuSwapBackend, AFullQueueMakesTheIssuerWait) {
  TestTier tier(1 << 20, /*queue_length=*/2);
  const auto bytes = pattern(64, 1);
  const HostBlock block = tier.backend->alloc_host(64, "a");
  tier.store->close();
  const test::OpenLater opening(*tier.store);
  TransferId last = 0;
  for (int i = 0; i < 8; ++i) last = tier.backend->issue_out(bytes.data(), block);
  EXPECT_GE(tier.store->writes, 5);  // one is under way and two wait when the last one is issued
  tier.backend->wait(last);
  EXPECT_EQ(tier.backend->report().queue_peak, 2);
  EXPECT_EQ(tier.backend->report().queued, 0);
  tier.backend->free_host(block);
}

TEST(CpuSwapBackend, AnExceptionOfACopyGoesToItsWaiterAndTheThreadGoesOn) {
  TestTier tier;
  const auto bytes = pattern(64, 1);
  const HostBlock block = tier.backend->alloc_host(64, "a");
  tier.store->fail_writes = true;
  const TransferId bad = tier.backend->issue_out(bytes.data(), block);
  expect_error<DataError>([&] { tier.backend->wait(bad); }, {"as it was told"});
  EXPECT_TRUE(tier.backend->done(bad));
  tier.store->fail_writes = false;
  const TransferId good = tier.backend->issue_out(bytes.data(), block);
  EXPECT_NO_THROW(tier.backend->wait(good));
  tier.backend->free_host(block);
}

TEST(CpuSwapBackend, TheThreadHasANameAndEndsWithTheBackEnd) {
  const auto named = [] {
    const auto names = test::thread_names();
    return std::count(names.begin(), names.end(), "lethe-swap");
  };
  const auto before = named();
  const auto bytes = pattern(64, 1);
  {
    TestTier tier;
    const HostBlock block = tier.backend->alloc_host(64, "a");
    tier.store->delay_ms = 20;
    tier.backend->wait(tier.backend->issue_out(bytes.data(), block));
    EXPECT_EQ(named(), before + 1);
    (void)tier.backend->issue_out(bytes.data(), block);  // the destructor ends it
  }
  EXPECT_EQ(named(), before);
}

// A file tier with one block of a megabyte in it.
struct FileTier {
  static constexpr int64_t kBytes = 1 << 20;

  FileTier() : backend(make_cpu_swap_backend(4 * kBytes, folder.path())) {
    block = backend->alloc_host(kBytes, "L0.mb0");
    backend->wait(backend->issue_out(bytes.data(), block));
  }

  [[nodiscard]] std::filesystem::path file() const {
    return test::nameless_files(folder.path()).at(0);
  }

  std::vector<std::byte> read_back() {
    std::vector<std::byte> back(static_cast<size_t>(kBytes));
    backend->wait(backend->issue_in(block, back.data()));
    return back;
  }

  test::TempFolder folder;
  std::vector<std::byte> bytes = pattern(kBytes, 7);
  std::shared_ptr<SwapBackend> backend;
  HostBlock block;
};

TEST(FileStore, BytesGoToANamelessFileAndComeBack) {
  FileTier tier;
  EXPECT_EQ(tier.folder.num_files(), 0U);
  EXPECT_EQ(std::filesystem::file_size(tier.file()), static_cast<uintmax_t>(FileTier::kBytes));
  EXPECT_EQ(tier.read_back(), tier.bytes);
  tier.backend->free_host(tier.block);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(FileStore, F10AFullDiskNamesThePath) {
  FileTier tier;
  const std::string folder = tier.folder.path().string();
  const test::FileSizeLimit limit(FileTier::kBytes + 4096);
  expect_error<DataError>(
      [&] { (void)tier.backend->alloc_host(FileTier::kBytes, "L1.mb0"); },
      {folder.c_str(), ".lethe-scratch-", "cannot reserve room, got 'File too large'"});
  EXPECT_EQ(tier.backend->report().host_bytes, FileTier::kBytes);  // the room was not lost
}

TEST(FileStore, F10AFileThatIsCutNamesThePathAndThePlace) {
  FileTier tier;
  const std::string folder = tier.folder.path().string();
  std::filesystem::resize_file(tier.file(), 4096);
  expect_error<DataError>(
      [&] { (void)tier.read_back(); },
      {folder.c_str(), "must have 1048576 bytes at 0, got 4096 before the end"});
}

TEST(FileStore, F10ADeviceThatReturnsOtherBytesIsFound) {
  FileTier tier;
  const std::string folder = tier.folder.path().string();
  {
    std::fstream file(tier.file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(77777);
    file.put('x');
    ASSERT_TRUE(file.good());
  }
  expect_error<DataError>([&] { (void)tier.read_back(); },
                          {folder.c_str(), "the 1048576 bytes at 0 must have checksum"});
}

TEST(FileStore, AFolderThatIsNotThereIsNamed) {
  const test::TempFolder folder;
  expect_error<DataError>([&] { (void)make_cpu_swap_backend(1 << 20, folder / "no"); },
                          {"/no: cannot create a file in the folder"});
}

}  // namespace
}  // namespace lethe
