#include "lethe/data/jsonl.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Json = nlohmann::json;

// what() without its "[json.exception.parse_error.101] parse error at line 1, column 5: ".
std::string reason_of(const Json::exception& error) {
  std::string reason = error.what();
  if (const size_t at = reason.find(": "); at != std::string::npos) return reason.substr(at + 2);
  return reason.substr(std::min(reason.find("] ") + 2, reason.size()));
}

Json parse_object(std::string_view line, const LinePlace& place) {
  // The parser takes such a byte for the end of its input.
  LETHE_CHECK(DataError,
              line.find('\0') == std::string_view::npos,
              "{}: must be a JSON object on one line, got a byte 0 at byte {} of the line; correct "
              "or remove the line",
              place.text(),
              line.find('\0') + 1);
  Json value;
  try {
    value = Json::parse(line);
  } catch (const Json::parse_error& error) {
    fail<DataError>(
        "{}: must be a JSON object on one line, got an error at byte {} of the line: {}; correct "
        "or "
        "remove the line",
        place.text(),
        error.byte,
        reason_of(error));
  } catch (const Json::exception& error) {  // a number that no double holds
    fail<DataError>(
        "{}: must be a JSON object on one line, got an error: {}; correct or remove the line",
        place.text(),
        reason_of(error));
  }
  LETHE_CHECK(DataError,
              value.is_object(),
              "{}: must be a JSON object, got {}; write {{\"text\": \"...\"}}",
              place.text(),
              value.type_name());
  return value;
}

std::string take_string(Json& object, const char* field, const LinePlace& place) {
  const auto found = object.find(field);
  LETHE_CHECK(DataError,
              found != object.end(),
              "{}: must have a field `text`, or `prompt` and `response`, got no `{}`; correct or "
              "remove the line",
              place.text(),
              field);
  LETHE_CHECK(DataError,
              found->is_string(),
              "{}: the field `{}` must be a string, got {}; correct or remove the line",
              place.text(),
              field,
              found->type_name());
  return std::move(found->get_ref<std::string&>());
}

}  // namespace

std::string LinePlace::text() const {
  return fmt::format("{}: line {} (byte {})", file, line, offset);
}

JsonlRecord parse_jsonl_line(std::string_view line, const LinePlace& place) {
  Json object = parse_object(line, place);
  const bool has_pair = object.contains("prompt") || object.contains("response");
  LETHE_CHECK(DataError,
              !has_pair || !object.contains("text"),
              "{}: must have either `text` or `prompt` and `response`, got both; remove one",
              place.text());
  JsonlRecord record{.has_prompt = has_pair};
  if (has_pair) record.prompt = take_string(object, "prompt", place);
  record.text = take_string(object, has_pair ? "response" : "text", place);
  return record;
}

}  // namespace lethe
