#include <array>

#include "lethe/data/byte_level_impl.h"

namespace lethe::detail {
namespace {

constexpr uint32_t kFirstMoved = 0x100;
constexpr uint32_t kNumLetters = kFirstMoved + 68;  // code points below, not all of them letters

constexpr bool is_own_letter(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::array<uint32_t, 256> make_letters() {
  std::array<uint32_t, 256> letters{};
  uint32_t moved = kFirstMoved;
  for (uint32_t byte = 0; byte < 256; ++byte) letters[byte] = is_own_letter(byte) ? byte : moved++;
  return letters;
}

constexpr std::array<uint32_t, 256> kLetters = make_letters();

// The byte of a code point; -1: no letter.
constexpr std::array<int16_t, kNumLetters> make_bytes() {
  std::array<int16_t, kNumLetters> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (uint32_t byte = 0; byte < 256; ++byte) bytes[kLetters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kNumLetters> kBytes = make_bytes();

}  // namespace

std::string byte_letter(uint8_t byte) {
  const uint32_t code = kLetters[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0u | (code >> 6)), static_cast<char>(0x80u | (code & 0x3Fu))};
}

std::optional<std::string> bytes_of_letters(std::string_view spelled) {
  std::string bytes;
  for (size_t i = 0; i < spelled.size(); ++i) {
    uint32_t code = static_cast<unsigned char>(spelled[i]);
    if (code >= 0x80) {
      // Letters have at most two bytes: a longer sequence is none.
      if (code >= 0xE0 || i + 1 == spelled.size()) return std::nullopt;
      code = ((code & 0x1Fu) << 6) | (static_cast<unsigned char>(spelled[++i]) & 0x3Fu);
    }
    if (code >= kNumLetters || kBytes[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code]));
  }
  return bytes;
}

}  // namespace lethe::detail
