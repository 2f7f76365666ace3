#include "lethe/io/mapped_file.h"

#include <string>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

TEST(MappedFile, GivesTheBytesOfTheFileAndStaysAfterAMove) {
  const test::TempFolder folder;
  write_file_atomically(folder / "a", std::string_view("bytes"));
  MappedFile file(folder / "a");
  const std::byte* const data = file.bytes().data();
  const MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data), moved.bytes().size()), "bytes");
  EXPECT_EQ(moved.path(), folder / "a");
}

TEST(MappedFile, KnowsWhenTheFileIsCut) {
  const test::TempFolder folder;
  write_file_atomically(folder / "a", std::string_view("bytes"));
  const MappedFile file(folder / "a");
  EXPECT_EQ(file.size_now(), 5u);
  std::filesystem::resize_file(folder / "a", 2);
  EXPECT_EQ(file.size_now(), 2u);
  EXPECT_EQ(file.bytes().size(), 5u);
}

TEST(MappedFile, AnEmptyFileIsEmptyAndAnythingElseIsNamed) {
  const test::TempFolder folder;
  write_file_atomically(folder / "empty", std::string_view());
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
  test::expect_error<DataError>([&] { MappedFile{folder / "none"}; }, {"none", "No such file"});
  test::expect_error<DataError>([&] { MappedFile{folder.path()}; }, {"cannot map", "directory"});
  test::expect_error<DataError>([] { MappedFile{"/dev/null"}; }, {"/dev/null", "cannot map"});
}

}  // namespace
}  // namespace lethe
