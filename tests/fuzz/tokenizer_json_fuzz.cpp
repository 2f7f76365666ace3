#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/base/error.h"
#include "lethe/data/tokenizer.h"

namespace {

// An alphabet of 256 entries does not fit into a short input: the mark stands for it.
constexpr std::string_view kAlphabetMark = "\"@\":0";

std::string letter(int byte) {
  static constexpr char kHex[] = "0123456789abcdef";
  const bool is_own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
  int code = byte;
  if (!is_own) code = byte <= 32 ? 0x100 + byte : byte <= 160 ? 0x121 + byte - 127 : 0x143;
  return {'\\', 'u', '0', kHex[code >> 8], kHex[(code >> 4) & 15], kHex[code & 15]};
}

std::string with_alphabet(std::string text) {
  const size_t at = text.find(kAlphabetMark);
  if (at == std::string::npos) return text;
  std::string entries;
  for (int byte = 0; byte < 256; ++byte)
    entries += (byte == 0 ? "\"" : ",\"") + letter(byte) + "\":" + std::to_string(byte);
  return text.replace(at, kAlphabetMark.size(), entries);
}

constexpr std::string_view kText =
    "The cat don't sat 12345  \n\n\xE4\xBD\xA0\xE5\xA5\xBD <x> <xy>abab\xFF\xE4\xBD "
    "aaaa\t\xF0\x9F\x98\x80";

}  // namespace

// libFuzzer's entry. Property: any bytes are either refused as DataError, or make a tokenizer that
// gives a text back from its tokens (a text may also exhaust the matcher of a fuzzed expression).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string input(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = lethe::Tokenizer::from_json(with_alphabet(input), "input");
    std::vector<int32_t> ids;
    tokenizer.encode(kText, ids);
    if (tokenizer.decode(ids) != kText) std::abort();
  } catch (const lethe::DataError&) {
    return 0;
  }
  return 0;
}
