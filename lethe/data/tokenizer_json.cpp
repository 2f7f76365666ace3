#include <algorithm>
#include <initializer_list>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/data/byte_level_impl.h"
#include "lethe/data/tokenizer_json_impl.h"

namespace lethe::detail {
namespace {

using json = nlohmann::json;

constexpr std::string_view kTypeHint = "only byte-level BPE is supported";

// The expression of a ByteLevel that cuts words itself.
constexpr const char* kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string short_dump(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// One object of the file. Every function throws with the path, the key and the rule.
class Object {
 public:
  Object(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) refuse("E-TOK-KEY", "it must be an object", short_dump(value));
  }

  [[noreturn]] void refuse(std::string_view rule,
                           std::string_view wanted,
                           std::string_view got,
                           std::string_view todo = kTypeHint) const {
    fail<DataError>("{} [{}]: {}, got {}; {}", where_, rule, wanted, got, todo);
  }

  void only_keys(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, unused] : value_.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        refuse("E-TOK-KEY", "each key must be a known one", "'" + key + "'");
  }

  // nullptr: absent or null.
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = value_.find(key);
    return found == value_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] const json& need(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) refuse("E-TOK-KEY", fmt::format("'{}' must be there", key), "nothing");
    return *value;
  }

  [[nodiscard]] Object object(const char* key) const { return {need(key), child(key)}; }

  [[nodiscard]] const json& array(const char* key) const {
    const json& value = need(key);
    if (!value.is_array())
      refuse("E-TOK-KEY", fmt::format("'{}' must be an array", key), short_dump(value));
    return value;
  }

  [[nodiscard]] Object element(const json& array, const char* key, size_t index) const {
    return {array[index], fmt::format("{}[{}]", child(key), index)};
  }

  [[nodiscard]] const std::string& text(const char* key) const {
    const json& value = need(key);
    if (!value.is_string())
      refuse("E-TOK-KEY", fmt::format("'{}' must be a string", key), short_dump(value));
    return value.get_ref<const std::string&>();
  }

  [[nodiscard]] std::string type() const { return find("type") ? text("type") : std::string(); }

  [[nodiscard]] bool flag(const char* key, bool if_absent) const {
    const json* value = find(key);
    if (value == nullptr) return if_absent;
    if (!value->is_boolean())
      refuse("E-TOK-KEY", fmt::format("'{}' must be true or false", key), short_dump(*value));
    return value->get<bool>();
  }

  [[nodiscard]] int32_t id(const json& value, std::string_view of) const {
    const bool fits = value.is_number_unsigned() &&
                      value.get<uint64_t>() <= static_cast<uint64_t>(kLargestTokenId);
    if (!fits)
      refuse("E-TOK-ID",
             fmt::format("the id of '{}' must be an integer in [0, {}]", of, kLargestTokenId),
             short_dump(value),
             "correct the file");
    return value.get<int32_t>();
  }

  // The key must be absent, null, or one of the neutral values.
  void unused(const char* key, std::string_view rule, std::initializer_list<json> neutral) const {
    const json* value = find(key);
    if (value != nullptr && std::find(neutral.begin(), neutral.end(), *value) == neutral.end())
      refuse(rule, fmt::format("'{}' must be null", key), short_dump(*value));
  }

  [[nodiscard]] const json& value() const { return value_; }

  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  [[nodiscard]] std::string child(const char* key) const {
    return where_.ends_with(": the file") ? where_.substr(0, where_.size() - 8) + key
                                          : where_ + "." + key;
  }

  const json& value_;
  std::string where_;
};

void read_normalizer(const Object& root) {
  const json* value = root.find("normalizer");
  if (value == nullptr) return;
  const Object normalizer = root.object("normalizer");
  const bool is_empty = normalizer.type() == "Sequence" && normalizer.array("normalizers").empty();
  if (!is_empty)
    normalizer.refuse(
        "E-TOK-NORMALIZER", "it must be null or an empty Sequence", short_dump(*value));
}

void read_split(const Object& split, std::vector<SplitSpec>& splits) {
  split.only_keys({"type", "pattern", "behavior", "invert"});
  const Object pattern = split.object("pattern");
  if (pattern.find("Regex") == nullptr)
    split.refuse("E-TOK-PRE", "'pattern' must be a Regex", short_dump(pattern.value()));
  if (split.text("behavior") != "Isolated")
    split.refuse("E-TOK-PRE", "'behavior' must be Isolated", "'" + split.text("behavior") + "'");
  // Isolated keeps matches and what is between them alike: inverting changes nothing.
  static_cast<void>(split.flag("invert", false));
  splits.push_back({pattern.text("Regex"), split.where()});
}

void read_byte_level(const Object& part, std::vector<SplitSpec>& splits) {
  part.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space", true))
    part.refuse("E-TOK-PRE",
                "'add_prefix_space' must be false",
                "true",
                "with it a decoded text would differ from the encoded one");
  if (part.flag("use_regex", true)) splits.push_back({kByteLevelWords, part.where()});
}

void read_pre_tokenizer(const Object& root, std::vector<SplitSpec>& splits) {
  const Object pre = root.object("pre_tokenizer");
  if (pre.type() == "ByteLevel") return read_byte_level(pre, splits);
  if (pre.type() != "Sequence")
    pre.refuse("E-TOK-PRE", "its type must be Sequence or ByteLevel", "'" + pre.type() + "'");
  pre.only_keys({"type", "pretokenizers"});
  const json& parts = pre.array("pretokenizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    const Object part = pre.element(parts, "pretokenizers", i);
    const std::string type = part.type();
    if (type != (i + 1 == parts.size() ? "ByteLevel" : "Split"))
      part.refuse("E-TOK-PRE", "a Sequence must be Splits, then one ByteLevel", "'" + type + "'");
    if (type == "Split") {
      read_split(part, splits);
    } else {
      read_byte_level(part, splits);
    }
  }
  if (parts.empty()) pre.refuse("E-TOK-PRE", "a Sequence must end in ByteLevel", "an empty one");
}

void read_decoder(const Object& root) {
  if (root.find("decoder") == nullptr) return;
  const Object decoder = root.object("decoder");
  if (decoder.type() != "ByteLevel")
    decoder.refuse("E-TOK-DECODER", "its type must be ByteLevel", "'" + decoder.type() + "'");
}

void read_vocab(const Object& model, TokenizerSpec& spec) {
  const Object vocab = model.object("vocab");
  std::unordered_set<int32_t> ids;
  spec.vocab.reserve(vocab.value().size());
  for (const auto& [token, value] : vocab.value().items()) {
    const int32_t id = vocab.id(value, token);
    if (!ids.insert(id).second)
      vocab.refuse("E-TOK-ID",
                   "each id must belong to one entry",
                   fmt::format("{} for '{}' and another one", id, token),
                   "correct the file");
    spec.vocab.emplace(token, id);
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!spec.vocab.contains(byte_letter(static_cast<uint8_t>(byte))))
      vocab.refuse(
          "E-TOK-BYTES",
          "each byte must have an entry",
          fmt::format(
              "none for byte {:02X} ('{}')", byte, byte_letter(static_cast<uint8_t>(byte))));
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_parts(const Object& model,
                                                const json& merge,
                                                size_t rank) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  model.refuse("E-TOK-MERGE",
               fmt::format("merges[{}] must be \"a b\" or [\"a\", \"b\"]", rank),
               short_dump(merge),
               "correct the file");
}

void read_merges(const Object& model, TokenizerSpec& spec) {
  const json& merges = model.array("merges");
  std::unordered_set<uint64_t> pairs;
  spec.merges.reserve(merges.size());
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto found = spec.vocab.find(token);
    if (found == spec.vocab.end())
      model.refuse("E-TOK-MERGE",
                   fmt::format("merges[{}] must join two entries of 'vocab' into a third", rank),
                   fmt::format("'{}', which is none", token),
                   "correct the file");
    return found->second;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merge_parts(model, merges[rank], rank);
    const Merge merge{id_of(left, rank),
                      id_of(right, rank),
                      static_cast<int32_t>(rank),
                      id_of(left + right, rank)};
    const auto pair = static_cast<uint64_t>(merge.left) << 32 | static_cast<uint64_t>(merge.right);
    if (!pairs.insert(pair).second)
      model.refuse("E-TOK-MERGE",
                   "each pair must merge once",
                   fmt::format("merges[{}] = '{} {}' again", rank, left, right),
                   "correct the file");
    spec.merges.push_back(merge);
  }
}

void read_model(const Object& root, TokenizerSpec& spec) {
  const Object model = root.object("model");
  // Files of the first years name no type; a model with merges is BPE.
  const bool is_bpe = model.find("type") ? model.type() == "BPE" : model.find("merges") != nullptr;
  if (!is_bpe) model.refuse("E-TOK-MODEL", "its type must be BPE", "'" + model.type() + "'");
  model.only_keys({"type",
                   "dropout",
                   "unk_token",
                   "continuing_subword_prefix",
                   "end_of_word_suffix",
                   "fuse_unk",
                   "byte_fallback",
                   "ignore_merges",
                   "vocab",
                   "merges"});
  model.unused("dropout", "E-TOK-MODEL", {0.0});
  model.unused("continuing_subword_prefix", "E-TOK-MODEL", {""});
  model.unused("end_of_word_suffix", "E-TOK-MODEL", {""});
  model.unused("byte_fallback", "E-TOK-MODEL", {false});
  spec.ignore_merges = model.flag("ignore_merges", false);
  read_vocab(model, spec);
  read_merges(model, spec);
}

// `id` of a content that is in the vocabulary too must be the same, and stand for the same bytes.
void check_against_vocab(const Object& token, const AddedToken& added, const TokenizerSpec& spec) {
  const auto entry = spec.vocab.find(added.content);
  if (entry == spec.vocab.end()) return;
  const auto bytes = bytes_of_letters(added.content);
  if (entry->second != added.id || bytes.value_or(added.content) != added.content)
    token.refuse("E-TOK-ADDED",
                 "a content that is an entry of 'vocab' must have its id and its bytes",
                 fmt::format("'{}' with id {}, there {}", added.content, added.id, entry->second),
                 "correct the file");
}

void read_added(const Object& root, TokenizerSpec& spec) {
  if (root.find("added_tokens") == nullptr) return;
  const json& tokens = root.array("added_tokens");
  std::unordered_map<int32_t, std::string> taken;
  for (const auto& [token, id] : spec.vocab) taken.emplace(id, token);
  std::unordered_set<std::string> contents;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Object token = root.element(tokens, "added_tokens", i);
    token.only_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (token.flag(key, false))
        token.refuse("E-TOK-ADDED",
                     fmt::format("'{}' must be false", key),
                     "true",
                     "such tokens are not supported");
    const AddedToken added{token.id(token.need("id"), token.text("content")),
                           token.text("content"),
                           token.flag("normalized", !token.flag("special", false))};
    if (added.content.empty() || !contents.insert(added.content).second)
      token.refuse("E-TOK-ADDED",
                   "contents must be distinct and not empty",
                   "'" + added.content + "'",
                   "correct the file");
    check_against_vocab(token, added, spec);
    if (taken.emplace(added.id, added.content).first->second != added.content)
      token.refuse("E-TOK-ID",
                   "each id must belong to one token",
                   fmt::format("{} for '{}' and '{}'", added.id, added.content, taken[added.id]),
                   "correct the file");
    spec.added.push_back(added);
  }
}

json parse(std::string_view text, const std::string& path) {
  // The JSON library takes a zero byte for the end of its input and would ignore what follows.
  LETHE_CHECK(DataError,
              text.find('\0') == std::string_view::npos,
              "{}: byte {} [E-TOK-JSON]: the file must be JSON, got a zero byte; is it a "
              "tokenizer.json?",
              path,
              text.find('\0'));
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    fail<DataError>(
        "{}: byte {} [E-TOK-JSON]: the file must be JSON, got '{}'; is it a "
        "tokenizer.json?",
        path,
        error.byte,
        error.what());
  } catch (const json::exception& error) {  // a number that no double holds
    fail<DataError>("{} [E-TOK-JSON]: the file must be JSON, got '{}'; is it a tokenizer.json?",
                    path,
                    error.what());
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& path) {
  const json document = parse(text, path);
  const Object root(document, path + ": the file");
  root.only_keys({"version",
                  "truncation",
                  "padding",
                  "added_tokens",
                  "normalizer",
                  "pre_tokenizer",
                  "post_processor",
                  "decoder",
                  "model"});
  root.unused("version", "E-TOK-KEY", {"1.0"});
  root.unused("truncation", "E-TOK-KEY", {});
  root.unused("padding", "E-TOK-KEY", {});
  TokenizerSpec spec;
  read_normalizer(root);
  read_pre_tokenizer(root, spec.splits);
  read_decoder(root);
  read_model(root, spec);
  read_added(root, spec);
  return spec;
}

}  // namespace lethe::detail
