#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace lethe::detail {

/// An open file; closes it at the end of its life. Not inherited by child processes.
class File {
 public:
  /// open(2) with O_CLOEXEC; throws DataError "PATH: cannot WHAT, got ERRNO-TEXT; ADVICE".
  File(const std::filesystem::path& path, int flags, std::string_view what);

  /// Takes an open descriptor.
  File(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] int fd() const { return fd_; }

  /// All bytes, whatever signals or short writes come between.
  void write_all(std::span<const std::byte> bytes);

  /// Until the device has them.
  void sync();

  /// Closes now and reports what the kernel could not write.
  void close();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// Throws DataError for the errno of a failed call on `path`: "PATH: cannot WHAT, got TEXT;
/// ADVICE".
[[noreturn]] void fail_errno(const std::filesystem::path& path, std::string_view what, int error);

}  // namespace lethe::detail
