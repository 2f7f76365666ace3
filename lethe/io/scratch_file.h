#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lethe {

namespace detail {
class File;
}

/// Room on a disk for bytes of this process only. The file has no name once it is made, so nothing
/// is left however the process ends, and only its owner may read it (mode 0600). What is written
/// goes to the device and leaves the page cache: room in a file is no memory. Several threads may
/// use it at a time, on ranges that do not overlap. All failures are DataError with the path that
/// the file was made at and the system's reason.
class ScratchFile {
 public:
  explicit ScratchFile(const std::filesystem::path& folder);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  /// The name that it had.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Takes [0, size) from the disk now, where the file system can; it never shrinks. One thread at
  /// a time.
  void reserve(uint64_t size);

  /// All of the bytes, at `offset` bytes from the start.
  void write(uint64_t offset, std::span<const std::byte> bytes);

  /// As many bytes as the span has; an end of the file before that is an error.
  void read(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<detail::File> file_;
  uint64_t size_ = 0;
};

}  // namespace lethe
