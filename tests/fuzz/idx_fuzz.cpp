#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "lethe/base/error.h"
#include "lethe/data/index_layout.h"

// libFuzzer's entry. The first 8 bytes are the size of the .bin, the rest is an .idx. Property: it
// is either refused as DataError, or its sequences lie one after another and fill the .bin, and its
// documents divide them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t bin_bytes = 0;
  if (size < sizeof(bin_bytes)) return 0;
  std::memcpy(&bin_bytes, data, sizeof(bin_bytes));
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof(bin_bytes));
  try {
    const lethe::IndexLayout layout(bytes, bin_bytes, "input");
    int64_t next = 0, sequence = 0;
    for (int64_t s = 0; s < layout.num_sequences(); ++s) {
      if (layout.token_begin(s) != next || layout.length(s) < 0) std::abort();
      next += layout.length(s);
    }
    const auto width = static_cast<uint64_t>(lethe::token_bytes(layout.dtype()));
    if (next != layout.num_tokens() || static_cast<uint64_t>(next) * width != bin_bytes)
      std::abort();
    for (int64_t d = 0; d <= layout.num_documents(); ++d) {
      if (layout.first_sequence(d) < sequence) std::abort();
      sequence = layout.first_sequence(d);
    }
    if (sequence != layout.num_sequences()) std::abort();
  } catch (const lethe::DataError&) {
  }
  return 0;
}
