#include "lethe/io/utf8.h"

#include <cstdint>

namespace lethe {
namespace {

// Length of the sequence that `lead` opens and the smallest code point it may encode; length 0: no
// lead byte.
struct Lead {
  size_t length;
  uint32_t smallest;
  uint32_t bits;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, byte};
  if (byte >= 0xC2 && byte < 0xE0) return {2, 0x80, byte & 0x1Fu};
  if (byte >= 0xE0 && byte < 0xF0) return {3, 0x800, byte & 0x0Fu};
  if (byte >= 0xF0 && byte < 0xF5) return {4, 0x10000, byte & 0x07u};
  return {0, 0, 0};
}

}  // namespace

size_t first_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Lead lead = lead_of(static_cast<unsigned char>(text[i]));
    if (lead.length == 0 || lead.length > text.size() - i) return i;
    uint32_t code = lead.bits;
    for (size_t k = 1; k < lead.length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xC0u) != 0x80u) return i;
      code = (code << 6) | (byte & 0x3Fu);
    }
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (code < lead.smallest || surrogate || code > 0x10FFFF) return i;
    i += lead.length;
  }
  return i;
}

}  // namespace lethe
