#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lethe::test {

/// Doors to the nameless files that this process has open and that were made in `folder`: what is
/// written to such a path is in the file. For tests that spoil one.
inline std::vector<std::filesystem::path> nameless_files(const std::filesystem::path& folder) {
  constexpr std::string_view kGone = " (deleted)";
  std::vector<std::filesystem::path> doors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error && target.starts_with(folder.string()) && target.ends_with(kGone))
      doors.push_back(entry.path());
  }
  return doors;
}

}  // namespace lethe::test
