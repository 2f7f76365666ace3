#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lethe {

/// Where the bytes of a host tier lie. Offsets and sizes in bytes. Reads and writes come from one
/// thread (the copy thread), reserve from others, never for a range that is being copied.
class HostStore {
 public:
  HostStore() = default;
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;
  virtual ~HostStore() = default;

  /// "memory", "a file in FOLDER": for errors.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Makes room for [0, end), `end` within the budget. DataError when the system has none.
  virtual void reserve(int64_t end) = 0;

  /// Keeps the bytes at `offset`. DataError when that fails.
  virtual void write(int64_t offset, std::span<const std::byte> bytes) = 0;

  /// The bytes of the last write at `offset`, as many as it wrote. DataError when they are not
  /// there or not what was written.
  virtual void read(int64_t offset, std::span<std::byte> bytes) = 0;
};

/// Memory of this process, outside of the byte accounting of tensors. `budget_bytes` of addresses
/// are set aside; pages are taken when they are first written to, and kept. DataError when the
/// system refuses the addresses.
[[nodiscard]] std::unique_ptr<HostStore> make_memory_store(int64_t budget_bytes);

/// A nameless file in `folder` (io/scratch_file.h), grown as far as it is used. Every block has a
/// checksum (CRC-32C), so that a device that returns other bytes is found.
[[nodiscard]] std::unique_ptr<HostStore> make_file_store(const std::filesystem::path& folder);

}  // namespace lethe
