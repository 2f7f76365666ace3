#include "lethe/io/scratch_file.h"

#include <fstream>
#include <vector>

#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/scratch_files.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return bytes;
}

TEST(ScratchFile, BlocksComeBackFromWhereTheyWereWritten) {
  const test::TempFolder folder;
  ScratchFile file(folder.path());
  file.reserve(1 << 20);
  const auto a = pattern(5000, 1), b = pattern(70001, 2);
  file.write(8192, a);
  file.write(100000, b);
  file.write(8192, b);  // over it, up to 78193
  std::vector<std::byte> read(b.size());
  file.read(100000, read);
  EXPECT_EQ(read, b);
  file.read(8192, read);
  EXPECT_EQ(read, b);
}

TEST(ScratchFile, HasNoNameAndIsReadableByItsOwnerOnly) {
  const test::TempFolder folder;
  const ScratchFile file(folder.path());
  EXPECT_EQ(folder.num_files(), 0U);
  const auto doors = test::nameless_files(folder.path());
  ASSERT_EQ(doors.size(), 1U);

  struct stat status {};

  ASSERT_EQ(::stat(doors[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(ScratchFile, ReserveTakesRoomAndNeverShrinks) {
  const test::TempFolder folder;
  ScratchFile file(folder.path());
  file.reserve(1 << 16);
  file.reserve(1 << 10);
  EXPECT_EQ(fs::file_size(test::nameless_files(folder.path()).at(0)), uintmax_t{1} << 16);
}

TEST(ScratchFile, FailuresNameThePathAndTheReason) {
  const test::TempFolder folder;
  test::expect_error<DataError>([&] { const ScratchFile file(folder / "no"); },
                                {"/no: cannot create a file in the folder",
                                 "got 'No such file or directory'",
                                 "check the path"});
  ScratchFile file(folder.path());
  const std::string path = file.path().string();
  const auto bytes = pattern(1 << 15, 3);
  {
    const test::FileSizeLimit limit(1 << 14);
    test::expect_error<DataError>([&] { file.reserve(1 << 15); },
                                  {path.c_str(), "cannot reserve room, got 'File too large'"});
    test::expect_error<DataError>([&] { file.write(0, bytes); },
                                  {path.c_str(), "cannot write, got 'File too large'"});
  }
  std::vector<std::byte> read(1 << 15);
  test::expect_error<DataError>([&] { file.read(0, read); },
                                {path.c_str(), "must have 32768 bytes at 0", "got 16384 before"});
  EXPECT_EQ(folder.num_files(), 0U);
}

}  // namespace
}  // namespace lethe
