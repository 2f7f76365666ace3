#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "lethe/base/error.h"
#include "lethe/io/safetensors_header.h"

// libFuzzer's entry. Property: any bytes are either refused as CheckpointError, or every tensor
// lies inside them, and laying the same tensors out again gives a header that parses to the same
// tensors.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  lethe::SafetensorsHeader header;
  try {
    header = lethe::parse_safetensors_header(input, size, "input");
  } catch (const lethe::CheckpointError&) {
    return 0;
  }
  unsigned sum = 0;
  for (const auto& tensor : header.tensors) {
    const auto bytes =
        input.subspan(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.num_bytes));
    if (bytes.data() < input.data() || bytes.data() + bytes.size() > input.data() + input.size())
      std::abort();
    for (const auto byte : bytes) sum += static_cast<unsigned>(byte);
  }
  const auto again = lethe::lay_out_safetensors(header.tensors, header.metadata, "output");
  const auto front = lethe::safetensors_header_bytes(again, "output");
  const auto data_bytes = size - static_cast<size_t>(header.data_begin);
  const auto parsed = lethe::parse_safetensors_header(
      std::as_bytes(std::span(front)), front.size() + data_bytes, "output");
  if (parsed.tensors.size() != header.tensors.size() || parsed.metadata != header.metadata)
    std::abort();
  return sum == ~0u ? 1 : 0;  // the reads above must not be optimised away
}
