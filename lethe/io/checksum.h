#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lethe {

/// CRC-32C (Castagnoli) of `bytes`, going on from `crc` = the checksum of what came before (0 at
/// the start). The instruction of the processor where there is one, else a table: same value.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

/// SHA-256 as 64 hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);

/// SHA-256 of a file's content. DataError when it cannot be read.
[[nodiscard]] std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace lethe
