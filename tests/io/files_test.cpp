#include <fstream>

#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/line_file.h"

namespace lethe {
namespace {

using test::TempFolder;

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AtomicFile, TheTargetAppearsAtCommitAndNotBefore) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  file.commit();
  EXPECT_EQ(read_text_file(folder / "a"), "one two");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(AtomicFile, WithoutCommitTheTargetStaysAndNothingRemains) {
  const TempFolder folder;
  write_file_atomically(folder / "a", std::string_view("old"));
  {
    AtomicFile file(folder / "a");
    file.write("half of the n");
    EXPECT_EQ(folder.num_files(), 2u);
  }
  EXPECT_EQ(read_text_file(folder / "a"), "old");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(AtomicFile, TwoWritersOfOneTargetDoNotMix) {
  const TempFolder folder;
  AtomicFile first(folder / "a");
  AtomicFile second(folder / "a");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read_text_file(folder / "a"), "first");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(AtomicFile, WritingAfterCommitOrCommittingTwiceIsAnInternalError) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  EXPECT_THROW(file.write("x"), InternalError);
  EXPECT_THROW(file.commit(), InternalError);
}

TEST(AtomicFile, FailuresNamePathAndReason) {
  const TempFolder folder;
  const auto missing = error_of([&] { AtomicFile file(folder / "no/a"); });
  EXPECT_TRUE(contains(missing, "no/a.tmp-")) << missing;
  EXPECT_TRUE(contains(missing, "got 'No such file or directory'")) << missing;
  std::filesystem::create_directory(folder / "d");
  std::ofstream(folder / "d/inside") << "x";
  const auto taken = error_of([&] { write_file_atomically(folder / "d", std::string_view("x")); });
  EXPECT_TRUE(contains(taken, "/d: cannot replace the file, got 'Is a directory'")) << taken;
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(AtomicFile, AFullDeviceIsAnErrorThatSaysSo) {
  LineFile full("/dev/full");
  const auto text = error_of([&] { full.append("x"); });
  EXPECT_TRUE(
      contains(text, "/dev/full: cannot write, got 'No space left on device'; free some space"))
      << text;
}

TEST(ReadTextFile, ReturnsEveryByteOfFilesOfAnySize) {
  const TempFolder folder;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{300000}}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    write_file_atomically(folder / "t", text);
    EXPECT_EQ(read_text_file(folder / "t"), text) << size;
  }
}

TEST(ReadTextFile, AMissingFileAndAFolderAreErrors) {
  const TempFolder folder;
  EXPECT_TRUE(contains(error_of([&] { (void)read_text_file(folder / "none"); }),
                       "none: cannot open the file"));
  EXPECT_TRUE(
      contains(error_of([&] { (void)read_text_file(folder.path()); }), "got 'Is a directory'"));
}

TEST(LineFile, LinesAreAppendedToWhatIsThere) {
  const TempFolder folder;
  {
    LineFile file(folder / "run.jsonl");
    file.append("{\"step\":1}");
    file.append("");
  }
  LineFile again(folder / "run.jsonl");
  again.append("{\"step\":2}");
  EXPECT_EQ(read_text_file(folder / "run.jsonl"), "{\"step\":1}\n\n{\"step\":2}\n");
}

TEST(LineFile, AnIncompleteLastLineIsEndedBeforeOurs) {
  const TempFolder folder;
  write_file_atomically(folder / "run.jsonl", std::string_view("{\"step\":1}\n{\"st"));
  LineFile file(folder / "run.jsonl");
  file.append("{\"step\":2}");
  EXPECT_EQ(read_text_file(folder / "run.jsonl"), "{\"step\":1}\n{\"st\n{\"step\":2}\n");
}

TEST(LineFile, ALineBreakInsideALineIsOurBug) {
  const TempFolder folder;
  LineFile file(folder / "run.jsonl");
  EXPECT_THROW(file.append("a\nb"), InternalError);
}

TEST(WritableFolder, MissingParentsAreMadeAndTheProbeIsRemoved) {
  const TempFolder folder;
  ensure_writable_folder(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a/b/c"));
  ensure_writable_folder(folder / "a/b/c");
}

TEST(WritableFolder, AFileInTheWayNamesTheFolderAndTheReason) {
  const TempFolder folder;
  write_file_atomically(folder / "file", std::string_view("x"));
  const auto text = error_of([&] { ensure_writable_folder(folder / "file/out"); });
  EXPECT_TRUE(contains(text, "file/out: cannot make the folder, got 'Not a directory'")) << text;
  EXPECT_TRUE(contains(error_of([&] { ensure_writable_folder(folder / "file"); }),
                       "got 'Not a directory'"));
}

TEST(WritableFolder, AFolderThatTakesNoFilesIsRefusedEvenForRoot) {
  const auto text = error_of([] { ensure_writable_folder("/proc/self"); });
  EXPECT_TRUE(contains(text, "/proc/self: cannot create a file in the folder, got '")) << text;
}

TEST(WritableFolder, AReadOnlyFolderIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "permission bits do not bind the root user";
  const TempFolder folder;
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_TRUE(contains(error_of([&] { ensure_writable_folder(folder.path()); }),
                       "got 'Permission denied'"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace lethe
