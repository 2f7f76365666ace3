#include "lethe/io/checksum.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lethe {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t crc_by_table(const unsigned char* bytes, size_t size, uint32_t state) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  for (size_t i = 0; i < size; ++i) state = (state >> 8) ^ kTable[(state ^ bytes[i]) & 0xff];
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(const unsigned char* bytes,
                                                              size_t size,
                                                              uint32_t state) {
  uint64_t wide = state;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  for (; size > 0; ++bytes, --size) state = _mm_crc32_u8(state, *bytes);
  return state;
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~crc_by_instruction(data, bytes.size(), ~crc);
#endif
  return ~crc_by_table(data, bytes.size(), ~crc);
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
    fail_internal("SHA-256 of libcrypto does not start");
}

void Sha256::add(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1)
    fail_internal("SHA-256 of libcrypto does not go on");
}

std::string Sha256::hex() const {
  // A copy is ended, so that more may be added to this one.
  const Sha256 copy;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_MD_CTX_copy_ex(copy.context_.get(), context_.get()) != 1 ||
      EVP_DigestFinal_ex(copy.context_.get(), digest.data(), &size) != 1)
    fail_internal("SHA-256 of libcrypto does not end");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const detail::File file(path, O_RDONLY, "open the file");
  Sha256 hash;
  std::vector<char> block(1 << 20);
  for (;;) {
    const ssize_t count = ::read(file.fd(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) detail::fail_errno(path, "read the file", errno);
    if (count == 0) return hash.hex();
    hash.add(std::as_bytes(std::span(block).first(static_cast<size_t>(count))));
  }
}

}  // namespace lethe
