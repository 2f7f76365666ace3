#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lethe/base/error.h"
#include "lethe/data/jsonl.h"
#include "lethe/io/utf8.h"

// libFuzzer's entry. Property: any line is either refused as DataError, one with a byte 0 always,
// or gives strings of valid UTF-8.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    const auto record = lethe::parse_jsonl_line(line, {.file = "input"});
    if (line.find('\0') != std::string_view::npos) std::abort();
    for (const std::string_view text : {record.prompt, record.text})
      if (lethe::first_invalid_utf8(text) != text.size()) std::abort();
    if (!record.has_prompt && !record.prompt.empty()) std::abort();
  } catch (const lethe::DataError&) {
  }
  return 0;
}
