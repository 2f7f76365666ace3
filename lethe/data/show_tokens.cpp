#include "lethe/data/show_tokens.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lethe/io/utf8.h"

namespace lethe {
namespace {

struct CodeRange {
  uint32_t first;
  uint32_t last;
};

// Code points that a terminal obeys or does not show: controls, joiners, marks of direction, line
// separators, the byte order mark.
constexpr CodeRange kUnseen[] = {{0x00, 0x1F},
                                 {0x7F, 0x9F},
                                 {0xAD, 0xAD},
                                 {0x200B, 0x200F},
                                 {0x2028, 0x202E},
                                 {0x2060, 0x206F},
                                 {0xFE00, 0xFE0F},
                                 {0xFEFF, 0xFEFF}};

// Bytes of the well-formed character at the front of `text`, and its code point.
size_t first_character(std::string_view text, uint32_t& code) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  code = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return length;
}

bool is_unseen(uint32_t code) {
  return std::any_of(std::begin(kUnseen), std::end(kUnseen), [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

void append_hex(std::string_view bytes, std::string& out) {
  for (const char byte : bytes)
    fmt::format_to(std::back_inserter(out), "\\x{:02X}", static_cast<unsigned char>(byte));
}

void append_character(std::string_view character, uint32_t code, std::string& out) {
  static constexpr std::string_view kNamed = "\n\r\t\"\\";
  static constexpr std::string_view kNames = "nrt\"\\";
  const size_t named = character.size() == 1 ? kNamed.find(character[0]) : std::string_view::npos;
  if (named != std::string_view::npos) {
    out += {'\\', kNames[named]};
  } else if (is_unseen(code)) {
    append_hex(character, out);
  } else {
    out += character;
  }
}

std::string escaped(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    size_t valid = first_invalid_utf8(bytes);
    while (valid > 0) {
      uint32_t code = 0;
      const size_t length = first_character(bytes, code);
      append_character(bytes.substr(0, length), code, out);
      bytes.remove_prefix(length);
      valid -= length;
    }
    append_hex(bytes.substr(0, 1), out);
    bytes.remove_prefix(std::min<size_t>(bytes.size(), 1));
  }
  return out;
}

std::string table(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  constexpr size_t kLeastWidth = 6;
  const size_t width = std::max(
      kLeastWidth, std::to_string(std::max<int64_t>(0, tokenizer.vocab_size() - 1)).size());
  std::string out = fmt::format("{:>{}}  bytes\n", "id", width);
  int64_t num_bytes = 0;
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id);
    num_bytes += static_cast<int64_t>(bytes.size());
    out += fmt::format("{:>{}}  {}\n", id, width, quoted_bytes(bytes));
  }
  return out + token_counts_text(num_bytes, static_cast<int64_t>(ids.size())) + "\n";
}

std::string json_line(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  nlohmann::ordered_json line{{"bytes", 0}, {"tokens", ids.size()}, {"ids", ids}};
  size_t num_bytes = 0;
  auto pieces = nlohmann::ordered_json::array();
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id);
    num_bytes += bytes.size();
    pieces.push_back(escaped(bytes));
  }
  line["bytes"] = num_bytes;
  line["pieces"] = std::move(pieces);
  return line.dump() + "\n";
}

}  // namespace

std::string show_tokens(const Tokenizer& tokenizer,
                        std::span<const int32_t> ids,
                        TokenListing listing) {
  if (listing == TokenListing::Json) return json_line(tokenizer, ids);
  if (listing == TokenListing::Ids) return fmt::format("{}\n", fmt::join(ids, " "));
  return table(tokenizer, ids);
}

std::string token_counts_text(int64_t num_bytes, int64_t num_tokens) {
  const std::string counts = fmt::format("{} bytes, {} tokens", num_bytes, num_tokens);
  if (num_tokens == 0) return counts;
  return fmt::format("{}, {:.2f} bytes per token",
                     counts,
                     static_cast<double>(num_bytes) / static_cast<double>(num_tokens));
}

std::string quoted_bytes(std::string_view bytes) {
  return '"' + escaped(bytes) + '"';
}

}  // namespace lethe
