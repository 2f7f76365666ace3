#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lethe/base/error.h"
#include "lethe/io/checkpoint_manifest.h"

// libFuzzer's entry. Property: a manifest is either refused as CheckpointError, or it is the one
// text of what was read.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (lethe::manifest_text(lethe::parse_manifest(text, "input")) != text) std::abort();
  } catch (const lethe::CheckpointError&) {
  }
  return 0;
}
