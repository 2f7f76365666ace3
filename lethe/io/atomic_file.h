#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lethe {

namespace detail {
class File;
}

/// A file that appears under its name complete or not at all. The bytes go to TARGET.tmp-PID-N
/// beside the target; commit() syncs them, renames the file over the target and syncs the folder.
/// Without commit the destructor removes the temporary file, and the target stays as it was. All
/// failures are DataError with the path and the system's reason. Not thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Once; nothing may be written after it.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::unique_ptr<detail::File> file_;
};

/// AtomicFile in one call.
void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

/// Renames a file over another, in one step, and syncs the folder of the new name. Its content is
/// not synced. DataError with the path and the system's reason.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// The whole file as it is, bytes unchanged. DataError if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::filesystem::path& path);

/// Makes the folder and its parents where missing and proves that a file can be created in it
/// (permission bits alone do not tell: read-only mounts, the root user). DataError naming the
/// folder and the reason.
void ensure_writable_folder(const std::filesystem::path& folder);

}  // namespace lethe
