#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace lethe {

/// What makes two paths the same file, whatever links lead there.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;

  auto operator<=>(const FileId&) const = default;
};

/// What stat(2) says of a path, links followed.
struct FileFacts {
  FileId id;
  int64_t bytes = 0;
  bool is_folder = false;
};

/// Nothing where nothing is there, which includes a name too long to exist. DataError where it
/// cannot be told, as below a folder that may not be read.
[[nodiscard]] std::optional<FileFacts> file_facts(const std::filesystem::path& path);

/// Whether anything is there; errors as above.
[[nodiscard]] bool file_exists(const std::filesystem::path& path);

}  // namespace lethe
