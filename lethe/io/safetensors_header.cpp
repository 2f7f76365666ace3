#include "lethe/io/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lethe/io/safetensors_json_impl.h"
#include "lethe/io/utf8.h"

namespace lethe {
namespace {

using detail::HeaderEntry;
using detail::refuse_safetensors;

static_assert(std::endian::native == std::endian::little,
              "tensors are stored little-endian and read by memcpy");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();

// product(shape) * bits / 8. Every prefix of the product must fit, as in the format's own reader.
uint64_t expected_bytes(const HeaderEntry& entry, const std::string& path) {
  uint64_t bits = static_cast<uint64_t>(dtype_bits(entry.dtype));
  bool fits = true;
  for (const uint64_t n : entry.shape)
    fits = fits && n <= kLargest && !__builtin_mul_overflow(bits, n, &bits);
  if (!fits || bits > kLargest)
    refuse_safetensors(path,
                       entry.offset,
                       "E-ST-OVERFLOW",
                       fmt::format("tensor '{}': the bits of {} [{}] must fit in 63 bits",
                                   entry.name,
                                   dtype_name(entry.dtype),
                                   fmt::join(entry.shape, ",")));
  if (bits % 8 != 0)
    refuse_safetensors(path,
                       entry.offset,
                       "E-ST-NIBBLE",
                       fmt::format("tensor '{}': F4 must fill whole bytes, got shape [{}]",
                                   entry.name,
                                   fmt::join(entry.shape, ",")));
  return bits / 8;
}

void check_lengths(const HeaderEntry& entry, const std::string& path) {
  if (entry.end < entry.begin)
    refuse_safetensors(path,
                       entry.offset,
                       "E-ST-OFFSETS",
                       fmt::format("tensor '{}': data_offsets must have begin <= end, got [{}, {}]",
                                   entry.name,
                                   entry.begin,
                                   entry.end));
  const uint64_t expected = expected_bytes(entry, path);
  if (entry.end - entry.begin != expected)
    refuse_safetensors(
        path,
        entry.offset,
        "E-ST-LENGTH",
        fmt::format(
            "tensor '{}': {} [{}] must take {} bytes, got data_offsets [{}, {}] of {} bytes",
            entry.name,
            dtype_name(entry.dtype),
            fmt::join(entry.shape, ","),
            expected,
            entry.begin,
            entry.end,
            entry.end - entry.begin));
}

// Sorted entries must follow each other exactly; returns the end of the last one.
uint64_t check_contiguous(const std::vector<HeaderEntry>& sorted, const std::string& path) {
  uint64_t end = 0;
  for (const auto& entry : sorted) {
    if (entry.begin != end)
      refuse_safetensors(
          path,
          entry.offset,
          entry.begin > end ? "E-ST-HOLE" : "E-ST-OVERLAP",
          fmt::format(
              "tensor '{}': data_offsets must begin at {}, where the bytes before it end, got {}",
              entry.name,
              end,
              entry.begin));
    end = entry.end;
  }
  return end;
}

uint64_t header_length(std::span<const std::byte> front,
                       uint64_t file_bytes,
                       const std::string& path) {
  if (file_bytes < kLengthBytes)
    refuse_safetensors(
        path, 0, "E-ST-SHORT", fmt::format("a file must have 8 bytes or more, got {}", file_bytes));
  uint64_t length = 0;
  std::memcpy(&length, front.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    refuse_safetensors(
        path,
        0,
        "E-ST-LIMIT",
        fmt::format("the header's length must be at most {}, got {}; is this a safetensors file?",
                    kMaxHeaderBytes,
                    length));
  if (length > file_bytes - kLengthBytes)
    refuse_safetensors(
        path,
        0,
        "E-ST-HEADER",
        fmt::format("the header must end inside the file of {} bytes, got a length of {}; "
                    "the file is cut off, fetch it again",
                    file_bytes,
                    length));
  return length;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

void check_name(const std::string& text, const std::string& path) {
  if (first_invalid_utf8(text) != text.size())
    refuse_safetensors(path, 0, "E-ST-UTF8", "names and metadata to be written must be UTF-8");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front,
                                           uint64_t file_bytes,
                                           const std::string& path) {
  const uint64_t length = header_length(front, file_bytes, path);
  const std::string_view text(reinterpret_cast<const char*>(front.data()) + kLengthBytes, length);
  auto parsed = detail::parse_header_json(text, path);
  auto& entries = parsed.entries;
  for (const auto& entry : entries) check_lengths(entry, path);
  std::stable_sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const uint64_t data_bytes = check_contiguous(entries, path);
  const uint64_t data_begin = kLengthBytes + length;
  const uint64_t present = file_bytes - data_begin;
  if (present != data_bytes)
    refuse_safetensors(
        path,
        std::min(file_bytes, data_begin + data_bytes),
        present < data_bytes ? "E-ST-TRUNCATED" : "E-ST-TRAILING",
        fmt::format(
            "the tensors must fill the {} bytes after the header exactly, got tensors of {} bytes"
            "; fetch the file again",
            present,
            data_bytes));
  SafetensorsHeader header{.tensors = {},
                           .metadata = std::move(parsed.metadata),
                           .data_begin = static_cast<int64_t>(data_begin)};
  header.tensors.reserve(entries.size());
  for (auto& entry : entries)
    header.tensors.push_back({std::move(entry.name),
                              entry.dtype,
                              {entry.shape.begin(), entry.shape.end()},
                              static_cast<int64_t>(data_begin + entry.begin),
                              static_cast<int64_t>(entry.end - entry.begin)});
  return header;
}

SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                      std::map<std::string, std::string> metadata,
                                      const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<std::string_view> names;
  uint64_t begin = 0;
  for (auto& tensor : tensors) {
    check_name(tensor.name, path);
    if (tensor.name == "__metadata__")
      refuse_safetensors(
          path, 0, "E-ST-NAME", "'__metadata__' is reserved, no tensor may have this name");
    names.push_back(tensor.name);
    // A negative size becomes one above 2^63, which the product refuses.
    const HeaderEntry entry{.name = tensor.name,
                            .dtype = tensor.dtype,
                            .shape = {tensor.shape.begin(), tensor.shape.end()}};
    tensor.num_bytes = static_cast<int64_t>(expected_bytes(entry, path));
    tensor.begin = static_cast<int64_t>(begin);
    begin += static_cast<uint64_t>(tensor.num_bytes);
    if (begin > kLargest)
      refuse_safetensors(
          path, 0, "E-ST-OVERFLOW", "all tensors together must take less than 2^63 bytes");
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    refuse_safetensors(path,
                       0,
                       "E-ST-DUPLICATE",
                       fmt::format("each name must occur once, got '{}' twice", *twice));
  for (const auto& [key, value] : metadata) {
    check_name(key, path);
    check_name(value, path);
  }
  SafetensorsHeader header{std::move(tensors), std::move(metadata), 0};
  header.data_begin = static_cast<int64_t>(safetensors_header_bytes(header, path).size());
  for (auto& tensor : header.tensors) tensor.begin += header.data_begin;
  return header;
}

std::string safetensors_header_bytes(const SafetensorsHeader& header, const std::string& path) {
  // Written by hand: an ordered JSON object compares each new key with all before it.
  std::string out(kLengthBytes, '\0');
  out += '{';
  const char* comma = "";
  if (!header.metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      out += fmt::format("{}{}:{}", comma, quoted(key), quoted(value));
      comma = ",";
    }
    out += '}';
  }
  for (const auto& tensor : header.tensors) {
    const int64_t begin = tensor.begin - header.data_begin;
    out += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                       comma,
                       quoted(tensor.name),
                       dtype_name(tensor.dtype),
                       fmt::join(tensor.shape, ","),
                       begin,
                       begin + tensor.num_bytes);
    comma = ",";
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  const uint64_t length = out.size() - kLengthBytes;
  if (length > kMaxHeaderBytes)
    refuse_safetensors(
        path,
        0,
        "E-ST-LIMIT",
        fmt::format("the header must take at most {} bytes, got {}; write several files",
                    kMaxHeaderBytes,
                    length));
  std::memcpy(out.data(), &length, kLengthBytes);
  return out;
}

}  // namespace lethe
