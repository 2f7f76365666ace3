#include <algorithm>
#include <iterator>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/data/prepare_progress_impl.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_facts.h"

namespace lethe::detail {
namespace {

using Json = nlohmann::json;

constexpr size_t kChecksumDigits = 8;

std::string checksum_of(std::string_view text) {
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

// Paths may be no UTF-8, which JSON cannot hold: a byte from 0x80 on becomes the character of its
// number.
std::string to_utf8(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::string from_utf8(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if (++i < text.size()) {
      bytes += static_cast<char>((lead << 6) | (static_cast<unsigned char>(text[i]) & 0x3F));
    }
  }
  return bytes;
}

Json to_json(const PrepareState& state) {
  Json settings = Json::object(), renames = Json::array();
  for (const auto& [key, value] : state.settings) settings[to_utf8(key)] = to_utf8(value);
  for (const auto& rename : state.renames)
    renames.push_back({to_utf8(rename.from), to_utf8(rename.to)});
  const IndexedMark& m = state.mark;
  return {
      {"settings", std::move(settings)},
      {"mark", {m.num_tokens, m.num_sequences, m.num_documents, m.open_tokens, m.masked_tokens}},
      {"source", state.source},
      {"offset", state.offset},
      {"line", state.line},
      {"input_bytes", state.input_bytes},
      {"sha256", state.sha256},
      {"done", state.done},
      {"empty_documents", state.empty_documents},
      {"largest_id", state.largest_id},
      {"renames", std::move(renames)}};
}

PrepareState from_json(const Json& json) {
  PrepareState state;
  for (const auto& [key, value] : json.at("settings").items())
    state.settings[from_utf8(key)] = from_utf8(value.get<std::string>());
  for (const auto& rename : json.at("renames"))
    state.renames.push_back(
        {from_utf8(rename.at(0).get<std::string>()), from_utf8(rename.at(1).get<std::string>())});
  const auto& mark = json.at("mark");
  state.mark = {mark.at(0), mark.at(1), mark.at(2), mark.at(3), mark.at(4)};
  json.at("source").get_to(state.source);
  json.at("offset").get_to(state.offset);
  json.at("line").get_to(state.line);
  json.at("input_bytes").get_to(state.input_bytes);
  json.at("sha256").get_to(state.sha256);
  json.at("done").get_to(state.done);
  json.at("empty_documents").get_to(state.empty_documents);
  json.at("largest_id").get_to(state.largest_id);
  return state;
}

constexpr std::string_view kInputKey = "input file ";
constexpr size_t kMostNamed = 3;

using Names = std::vector<std::string>;

// The input files, in the order of their names.
Names inputs_of(const std::map<std::string, std::string>& settings) {
  Names names;
  for (const auto& [key, value] : settings)
    if (key.starts_with(kInputKey)) names.push_back(value);
  std::sort(names.begin(), names.end());
  return names;
}

// Those of `a` that are not in `b`: ", what: 'x', 'y', 'z' and 5 more"; empty where there are none.
std::string only_in(const Names& a, const Names& b, std::string_view what) {
  Names only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  std::string text;
  for (size_t i = 0; i < std::min(only.size(), kMostNamed); ++i)
    text += fmt::format("{}'{}'", i == 0 ? fmt::format("; {}: ", what) : ", ", only[i]);
  if (only.size() > kMostNamed) text += fmt::format(" and {} more", only.size() - kMostNamed);
  return text;
}

}  // namespace

std::string input_key(size_t i) {
  return fmt::format("{}{}", kInputKey, i + 1);
}

std::string differences(const std::map<std::string, std::string>& then,
                        const std::map<std::string, std::string>& now) {
  if (then == now) return "";
  std::string text;
  for (const auto& [key, value] : now) {
    if (key.starts_with(kInputKey)) continue;
    const auto before = then.find(key);
    const std::string was = before == then.end() ? "none" : before->second;
    if (was != value) text += fmt::format("; {}: '{}' then, '{}' now", key, was, value);
  }
  const Names inputs_then = inputs_of(then), inputs_now = inputs_of(now);
  text += only_in(inputs_then, inputs_now, "input files that are gone");
  text += only_in(inputs_now, inputs_then, "input files that are new");
  return text.empty() ? "the order of the input files" : text.substr(2);
}

int64_t save_state(const std::string& path, const PrepareState& state) {
  std::string text = to_json(state).dump();
  text += checksum_of(text);
  write_file_atomically(path, text);
  return static_cast<int64_t>(text.size());
}

std::optional<PrepareState> load_state(const std::string& path) {
  if (!file_exists(path)) return std::nullopt;
  const std::string text = read_text_file(path);
  const size_t size = text.size() < kChecksumDigits ? 0 : text.size() - kChecksumDigits;
  const std::string_view content = std::string_view(text).substr(0, size);
  LETHE_CHECK(
      DataError,
      size > 0 && checksum_of(content) == std::string_view(text).substr(size),
      "{}: must end in the checksum of its content, got something else; the file is damaged, "
      "begin anew with --overwrite",
      path);
  try {
    return from_json(Json::parse(content));
  } catch (const Json::exception& error) {
    fail<DataError>(
        "{}: must hold the progress of a preparation of this version, got '{}'; begin anew with "
        "--overwrite",
        path,
        error.what());
  }
}

}  // namespace lethe::detail
