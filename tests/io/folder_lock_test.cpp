#include "lethe/io/folder_lock.h"

#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using test::TempFolder;

std::string refusal(const std::filesystem::path& folder) {
  try {
    const FolderLock lock(folder);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

/// A child process that does its work, says so, and then repeats `then` until it is killed.
class Child {
 public:
  explicit Child(
      const std::function<void()>& work, const std::function<void()>& then = [] { ::pause(); }) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      (void)!::write(ends[1], "x", 1);
      ::close(ends[1]);
      for (;;) then();
    }
    ::close(ends[1]);
    char byte = 0;
    ready_ = ::read(ends[0], &byte, 1) == 1;
    ::close(ends[0]);
  }

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  ~Child() { kill(); }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  [[nodiscard]] pid_t pid() const { return pid_; }

  [[nodiscard]] bool ready() const { return ready_; }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

TEST(FolderLock, TheFileSaysWhoHoldsItAndStaysAfterwards) {
  const TempFolder folder;
  { const FolderLock lock(folder.path()); }
  const auto line = nlohmann::json::parse(read_text_file(folder / ".lock"));
  EXPECT_EQ(line["pid"], ::getpid());
  EXPECT_FALSE(line["host"].get<std::string>().empty());
  EXPECT_EQ(line["started"].get<std::string>().size(), std::string("2026-01-31T12:00:00Z").size());
  EXPECT_NE(line["command"].get<std::string>().find("test_plain"), std::string::npos);
  EXPECT_FALSE(folder_lock_holder(folder.path()).has_value());
  EXPECT_EQ(refusal(folder.path()), "accepted");
}

TEST(FolderLock, ALongerLineOfAnEarlierHolderLeavesNothing) {
  const TempFolder folder;
  folder.write(".lock", std::string(5000, 'x'));
  const FolderLock lock(folder.path());
  EXPECT_EQ(nlohmann::json::parse(read_text_file(folder / ".lock"))["pid"], ::getpid());
}

TEST(FolderLock, ASecondLockIsRefusedWithFolderHolderAndAWayOut) {
  const TempFolder folder;
  const Child holder([&] { static const FolderLock lock(folder.path()); });
  ASSERT_TRUE(holder.ready());
  const std::string text = refusal(folder.path());
  EXPECT_TRUE(text.starts_with(folder.path().string() + " [lock]: must not be in use")) << text;
  for (const std::string& part : {std::string("got process ") + std::to_string(holder.pid()),
                                  std::string("since 20"),
                                  std::string("test_plain"),
                                  "kill " + std::to_string(holder.pid()),
                                  std::string("choose another folder")})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const auto seen = folder_lock_holder(folder.path());
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->pid, holder.pid());
}

TEST(FolderLock, TwoLocksOfOneProcessExcludeEachOther) {
  const TempFolder folder;
  std::optional<FolderLock> first(folder.path());
  EXPECT_NE(refusal(folder.path()), "accepted");
  FolderLock moved = std::move(*first);
  first.reset();
  EXPECT_NE(refusal(folder.path()), "accepted");
}

TEST(FolderLock, AKilledHolderLeavesTheFolderFree) {
  const TempFolder folder;
  Child holder([&] { static const FolderLock lock(folder.path()); });
  ASSERT_TRUE(folder_lock_holder(folder.path()).has_value());
  holder.kill();
  EXPECT_FALSE(folder_lock_holder(folder.path()).has_value());
  EXPECT_EQ(refusal(folder.path()), "accepted");
}

TEST(FolderLock, AProgramThatTheHolderStartsDoesNotKeepIt) {
  const TempFolder folder;
  std::optional<FolderLock> lock(folder.path());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t program = ::fork();
  if (program == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execlp("sh", "sh", "-c", "echo x; exec sleep 60", nullptr);
    ::_exit(127);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);  // it runs
  lock.reset();
  EXPECT_EQ(refusal(folder.path()), "accepted");
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(FolderLock, AForkedChildThatEndsDoesNotFreeTheLockOfItsParent) {
  const TempFolder folder;
  std::optional<FolderLock> lock(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(folder_lock_holder(folder.path()).has_value());
}

TEST(FolderLock, AskingForTheHolderDoesNotMakeALockerFail) {
  const TempFolder folder;
  folder.write(".lock", "");
  const Child asker([] {}, [&] { (void)folder_lock_holder(folder.path()); });
  ASSERT_TRUE(asker.ready());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(refusal(folder.path()), "accepted");
}

TEST(FolderLock, AFolderWithoutALockFileHasNoHolderAndGetsNoFile) {
  const TempFolder folder;
  EXPECT_FALSE(folder_lock_holder(folder.path()).has_value());
  EXPECT_EQ(folder.num_files(), 0u);
}

TEST(FolderLock, AMissingFolderIsNamed) {
  const TempFolder folder;
  EXPECT_NE(refusal(folder / "absent").find("absent/.lock: cannot open the lock file"),
            std::string::npos);
}

TEST(FolderLock, AHolderWhoseNameIsUnreadableIsStillRefused) {
  const TempFolder folder;
  const FolderLock lock(folder.path());
  folder.write(".lock", "not JSON");
  EXPECT_NE(refusal(folder.path()).find("did not write its name"), std::string::npos);
  EXPECT_EQ(folder_lock_holder(folder.path())->pid, 0);
}

}  // namespace
}  // namespace lethe
