#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace lethe::test {

/// The letter of a byte in GPT-2's alphabet, written down independently of the library: printable
/// Latin-1 stands for itself, the others are counted up from U+0100.
inline std::string letter(int byte) {
  const auto is_own = [](int b) { return (b > 32 && b < 127) || (b > 160 && b < 256 && b != 173); };
  int code = byte;
  if (!is_own(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_own(b) ? 0 : 1;
  }
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// A tokenizer.json with one entry per byte (id = byte), one per merge (ids 256 and up), no split,
/// no added token: the least that is accepted.
inline nlohmann::json small_tokenizer(
    std::initializer_list<std::pair<const char*, const char*>> merges) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[letter(byte)] = byte;
  auto list = nlohmann::json::array();
  int next = 256;
  for (const auto& [left, right] : merges) {
    const std::string merged = std::string(left) + right;
    if (!vocab.contains(merged)) vocab[merged] = next++;
    list.push_back(std::string(left) + " " + right);
  }
  nlohmann::json file;
  file["version"] = "1.0";
  file["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
  return file;
}

}  // namespace lethe::test
