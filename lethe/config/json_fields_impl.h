#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace lethe {

using Json = nlohmann::ordered_json;

/// Throws ConfigError: not JSON (with the position), not an object, or a key that occurs twice.
[[nodiscard]] Json parse_json_object(std::string_view text, std::string_view where);

/// Typed reading of one JSON object. Problems are collected, not thrown: a bad or missing value
/// reads as nullopt and leaves one sentence. Remembers which keys were asked for.
class JsonFields {
 public:
  /// path: prefix of key names in messages, e.g. "rope_scaling."; empty at the top.
  JsonFields(const Json& object,
             std::string where,
             std::string path,
             std::vector<std::string>& problems)
      : object_(object), where_(std::move(where)), path_(std::move(path)), problems_(problems) {}

  /// The value, null counting as absent. Marks the key as known.
  [[nodiscard]] const Json* find(const std::string& key);

  /// Is the key there, be it null?
  [[nodiscard]] bool has(const std::string& key) const { return object_.contains(key); }

  /// Integer >= 0; real >= 0 and finite; each from one of several spellings, which must agree.
  [[nodiscard]] std::optional<int64_t> count(std::initializer_list<const char*> keys);
  [[nodiscard]] std::optional<double> real(std::initializer_list<const char*> keys);
  [[nodiscard]] std::optional<bool> flag(const std::string& key);
  [[nodiscard]] std::optional<std::string> word(std::initializer_list<const char*> keys);
  [[nodiscard]] std::optional<std::vector<int64_t>> counts(const std::string& key);
  [[nodiscard]] std::optional<std::vector<std::string>> words(const std::string& key);
  /// A nested object, under the path "key.".
  [[nodiscard]] std::optional<JsonFields> object(const std::string& key);

  /// The key must be absent, null, or equal to `expected`.
  void fixed(const std::string& key, const Json& expected, std::string_view why);

  /// `<where>: <what must hold>, got <actual>; <what to do>`.
  void problem(std::string_view key, std::string_view rest);

  /// Keys never asked for, in file order.
  [[nodiscard]] std::vector<std::string> unknown_keys() const;

 private:
  template <class T, class Read>
  std::optional<T> agreeing(std::initializer_list<const char*> keys, Read read);
  std::optional<int64_t> to_count(const std::string& key, const Json& value);
  std::optional<double> to_real(const std::string& key, const Json& value);

  const Json& object_;
  std::string where_, path_;
  std::vector<std::string>& problems_;
  std::set<std::string> known_;
};

}  // namespace lethe
