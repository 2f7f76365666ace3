#include <cmath>
#include <limits>

#include "lethe/base/error.h"
#include "lethe/config/json_fields_impl.h"

namespace lethe {

Json parse_json_object(std::string_view text, std::string_view where) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    fail<ConfigError>(
        "{}: must be JSON, got {}; correct the file (JSON has no NaN, Infinity or comments)",
        where,
        error.what());
  }
  LETHE_CHECK(ConfigError,
              twice.empty(),
              "{}: every key must occur once, got '{}' twice; remove one",
              where,
              twice);
  LETHE_CHECK(ConfigError,
              json.is_object(),
              "{}: must be a JSON object, got {}; correct the file",
              where,
              json.type_name());
  return json;
}

const Json* JsonFields::find(const std::string& key) {
  known_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::problem(std::string_view key, std::string_view rest) {
  problems_.push_back(fmt::format("{}: '{}{}' {}", where_, path_, key, rest));
}

std::optional<int64_t> JsonFields::to_count(const std::string& key, const Json& value) {
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value.is_number_integer() && !too_large && value.get<int64_t>() >= 0)
    return value.get<int64_t>();
  problem(key, fmt::format("must be an integer >= 0, got {}; correct the value", value.dump()));
  return std::nullopt;
}

std::optional<double> JsonFields::to_real(const std::string& key, const Json& value) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (std::isfinite(number) && number >= 0) return number;
  }
  problem(key,
          fmt::format("must be a finite number >= 0, got {}; correct the value", value.dump()));
  return std::nullopt;
}

template <class T, class Read>
std::optional<T> JsonFields::agreeing(std::initializer_list<const char*> keys, Read read) {
  std::optional<T> result;
  std::string from;
  for (const std::string key : keys) {
    const Json* value = find(key);
    if (!value) continue;
    const std::optional<T> got = read(key, *value);
    if (!got) continue;
    if (result && *result != *got) {
      problem(key,
              fmt::format("must agree with '{}{}' = {}, got {}; both name the same thing, give one",
                          path_,
                          from,
                          Json(*result).dump(),
                          value->dump()));
    }
    if (!result) {
      result = got;
      from = key;
    }
  }
  return result;
}

std::optional<int64_t> JsonFields::count(std::initializer_list<const char*> keys) {
  return agreeing<int64_t>(keys,
                           [this](const std::string& k, const Json& v) { return to_count(k, v); });
}

std::optional<double> JsonFields::real(std::initializer_list<const char*> keys) {
  return agreeing<double>(keys,
                          [this](const std::string& k, const Json& v) { return to_real(k, v); });
}

std::optional<bool> JsonFields::flag(const std::string& key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  problem(key, fmt::format("must be true or false, got {}; correct the value", value->dump()));
  return std::nullopt;
}

std::optional<std::string> JsonFields::word(std::initializer_list<const char*> keys) {
  return agreeing<std::string>(
      keys, [this](const std::string& k, const Json& v) -> std::optional<std::string> {
        if (v.is_string()) return v.get<std::string>();
        problem(k, fmt::format("must be a string, got {}; correct the value", v.dump()));
        return std::nullopt;
      });
}

std::optional<std::vector<int64_t>> JsonFields::counts(const std::string& key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) {
    problem(key,
            fmt::format("must be a list of integers, got {}; correct the value", value->dump()));
    return std::nullopt;
  }
  std::vector<int64_t> list;
  for (size_t i = 0; i < value->size(); ++i) {
    const auto entry = to_count(fmt::format("{}[{}]", key, i), (*value)[i]);
    if (!entry) return std::nullopt;
    list.push_back(*entry);
  }
  return list;
}

std::optional<std::vector<std::string>> JsonFields::words(const std::string& key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  std::vector<std::string> list;
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_string();
    if (good) list.push_back((*value)[i].get<std::string>());
  }
  if (good) return list;
  problem(key, fmt::format("must be a list of strings, got {}; correct the value", value->dump()));
  return std::nullopt;
}

std::optional<JsonFields> JsonFields::object(const std::string& key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_object()) return JsonFields(*value, where_, path_ + key + ".", problems_);
  problem(key, fmt::format("must be an object, got {}; correct the value", value->dump()));
  return std::nullopt;
}

void JsonFields::fixed(const std::string& key, const Json& expected, std::string_view why) {
  const Json* value = find(key);
  if (!value || *value == expected) return;
  problem(key, fmt::format("must be {}, got {}; {}", expected.dump(), value->dump(), why));
}

std::vector<std::string> JsonFields::unknown_keys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) {
    if (!known_.contains(item.key())) keys.push_back(item.key());
  }
  return keys;
}

}  // namespace lethe
