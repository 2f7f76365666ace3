#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace lethe {

namespace detail {
class File;
}

/// What FOLDER/.lock says about the process that locked the folder. Fields that it does not say are
/// empty, or 0.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  std::string started;  // when it took the lock, UTC: "2026-01-31T12:00:00Z"
  std::string command;  // its command line, words separated by spaces
};

/// Keeps other processes from writing to a folder while the object lives: flock(LOCK_EX) on
/// FOLDER/.lock, whose content is one JSON line with the fields of LockHolder. The kernel frees the
/// lock when the process ends, however it ends. The file is never deleted: that would let two
/// processes lock two files of one name. A program that is started (exec) does not keep the lock; a
/// forked child without exec does while it lives. Locks are per open file, so that a second lock in
/// one process is refused too. Not thread-safe. Source: spec 6-checkpoints 4.8.
class FolderLock {
 public:
  /// Throws DataError: the folder is locked (who, since when and what to do), or cannot be written.
  /// Waits up to a fifth of a second before it refuses, since folder_lock_holder() takes the lock
  /// for a moment.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&&) noexcept;
  FolderLock& operator=(FolderLock&&) noexcept;
  ~FolderLock();

 private:
  std::unique_ptr<detail::File> file_;
};

/// Who holds the lock of the folder now; nothing where nobody does. DataError where a lock file is
/// there but cannot be read.
[[nodiscard]] std::optional<LockHolder> folder_lock_holder(const std::filesystem::path& folder);

}  // namespace lethe
