#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

namespace lethe {

namespace detail {
class File;
}

/// A file to which whole lines are appended, e.g. a JSONL run record. Each line is one write to the
/// kernel: it survives the death of the process, and readers never see lines of two writers mixed.
class LineFile {
 public:
  /// Opens or creates it. An incomplete last line, left by a killed writer, is ended first, so that
  /// it never becomes the beginning of ours. DataError with the path and the system's reason.
  explicit LineFile(const std::filesystem::path& path);
  LineFile(LineFile&&) noexcept;
  LineFile& operator=(LineFile&&) noexcept;
  ~LineFile();

  /// line: without '\n'; InternalError otherwise, since it would become two records.
  void append(std::string_view line);

  /// Returns when the device has every line.
  void sync();

 private:
  std::unique_ptr<detail::File> file_;
};

}  // namespace lethe
