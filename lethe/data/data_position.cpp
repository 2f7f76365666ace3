#include "lethe/data/data_position.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

[[noreturn]] void refuse(const std::string& what) {
  fail<CheckpointError>(
      "data position: {}; the checkpoint is damaged or of another version, use another one", what);
}

// A field of exactly this kind: nlohmann would round numbers and take true for 1.
const Json& field(const Json& object,
                  const char* name,
                  bool (*is_kind)(const Json&),
                  const char* kind) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("must have a field '{}', got none", name));
  if (!is_kind(*found))
    refuse(fmt::format("the field '{}' must be {}, got {}", name, kind, found->dump()));
  return *found;
}

int64_t count_field(const Json& object, const char* name, int64_t least) {
  const auto is_count = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  };
  const auto value = field(object, name, is_count, "a whole number >= 0").get<int64_t>();
  if (value < least)
    refuse(fmt::format("the field '{}' must be at least {}, got {}", name, least, value));
  return value;
}

double number_field(const Json& object, const char* name) {
  const auto is_number = [](const Json& value) { return value.is_number(); };
  return field(object, name, is_number, "a number").get<double>();
}

std::string text_field(const Json& object, const char* name) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  return field(object, name, is_text, "a text").get<std::string>();
}

DataPosition::Part part_of(const Json& json) {
  if (!json.is_object()) refuse("a part must be an object, got " + json.dump());
  DataPosition::Part part;
  part.path = text_field(json, "path");
  part.fingerprint = text_field(json, "fingerprint");
  part.weight = number_field(json, "weight");
  part.sequences = count_field(json, "sequences", 1);
  part.next_sample = count_field(json, "next_sample", 0);
  if (!(part.weight > 0)) refuse(fmt::format("a weight must be > 0, got {}", part.weight));
  return part;
}

}  // namespace

std::string DataPosition::to_json() const {
  nlohmann::ordered_json json = {{"version", kVersion},
                                 {"seed", seed},
                                 {"seq_length", seq_length},
                                 {"valid_fraction", valid_fraction},
                                 {"next_sample", next_sample}};
  auto list = nlohmann::ordered_json::array();
  for (const Part& part : parts)
    list.push_back({{"path", part.path},
                    {"fingerprint", part.fingerprint},
                    {"weight", part.weight},
                    {"sequences", part.sequences},
                    {"next_sample", part.next_sample}});
  json["parts"] = std::move(list);
  // A path may be no UTF-8: it is for people, so its bytes are then replaced.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

DataPosition DataPosition::from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse("must be a JSON object, got something else");
  if (const int64_t version = count_field(json, "version", 0); version != kVersion)
    refuse(fmt::format("the version must be {}, got {}", kVersion, version));
  const auto is_seed = [](const Json& value) { return value.is_number_unsigned(); };
  DataPosition position;
  position.seed = field(json, "seed", is_seed, "a whole number >= 0").get<uint64_t>();
  position.seq_length = count_field(json, "seq_length", 1);
  position.valid_fraction = number_field(json, "valid_fraction");
  position.next_sample = count_field(json, "next_sample", 0);
  const auto is_list = [](const Json& value) { return value.is_array() && !value.empty(); };
  uint64_t sum = 0;  // wraps for nonsense only
  for (const Json& part : field(json, "parts", is_list, "a list of at least one part")) {
    position.parts.push_back(part_of(part));
    sum += static_cast<uint64_t>(position.parts.back().next_sample);
  }
  if (sum != static_cast<uint64_t>(position.next_sample))
    refuse(fmt::format(
        "next_sample must be the sum of the parts', {}, got {}", sum, position.next_sample));
  return position;
}

}  // namespace lethe
