#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace lethe {

/// A file read once from front to end, in blocks or in lines, with the SHA-256 of what was given.
/// Holds one block (1 MiB) or one line. DataError for errors of the system. Not thread-safe.
class InputStream {
 public:
  /// Where reading goes on: the bytes before `offset` are hashed, not given.
  struct Begin {
    int64_t offset = 0;
    int64_t line = 1;  // 1-based number of the line that begins there
  };

  explicit InputStream(const std::filesystem::path& path, Begin begin = {0, 1});
  InputStream(InputStream&&) noexcept;
  ~InputStream();

  /// The next block, empty at the end of the file. Valid until the next call.
  std::string_view next_block();

  /// The next line without its "\n" or "\r\n"; false at the end of the file. Valid until the next
  /// call. DataError naming the line when it has more than max_bytes.
  bool next_line(std::string_view& line, int64_t max_bytes);

  /// Number of the line that next_line gives next.
  [[nodiscard]] int64_t line() const;

  /// Byte of the file behind what was given last.
  [[nodiscard]] int64_t offset() const;

  /// SHA-256 of bytes [0, offset()) as 64 hexadecimal digits.
  [[nodiscard]] std::string sha256() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
