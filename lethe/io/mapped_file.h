#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lethe {

/// A regular file mapped read-only. Nothing is read before it is touched, and what was read is page
/// cache that the system may take back: a file much larger than the memory can be mapped.
/// Thread-safe after construction. Moving keeps the bytes where they are.
class MappedFile {
 public:
  /// DataError with the path and the system's reason when it cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  [[nodiscard]] const std::filesystem::path& path() const;

  /// The whole file as it was when opened; an empty file gives an empty span.
  [[nodiscard]] std::span<const std::byte> bytes() const;

  /// Size of the file now. A page beyond its end kills the process when read: whoever cannot rule
  /// out that the file is cut compares this with bytes().size() first.
  [[nodiscard]] uint64_t size_now() const;

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace lethe
