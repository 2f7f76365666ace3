#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;  // of OpenSSL

namespace lethe {

/// CRC-32C (Castagnoli) of `bytes`, going on from `crc` = the checksum of what came before (0 at
/// the start). The instruction of the processor where there is one, else a table: same value.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

/// SHA-256 of bytes that come piece by piece. Not thread-safe.
class Sha256 {
 public:
  Sha256();

  void add(std::span<const std::byte> bytes);

  /// Of everything added so far, as 64 hexadecimal digits; more may be added afterwards.
  [[nodiscard]] std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// SHA-256 as 64 hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);

/// SHA-256 of a file's content. DataError when it cannot be read.
[[nodiscard]] std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace lethe
