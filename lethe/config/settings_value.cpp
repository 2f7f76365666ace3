#include "lethe/config/settings_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Whole words only; a leading '+' is allowed, as in most number readers.
template <class T>
bool read_number(std::string_view word, T& out) {
  if (!word.empty() && word.front() == '+') word.remove_prefix(1);
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, out);
  return error == std::errc() && stop == end && !word.empty();
}

[[noreturn]] void refuse(const Setting& row, const GivenSetting& given, const char* expected) {
  fail<ConfigError>(
      "{} [type]: must be {}, got {}; see the row of --{} in lethe {} --help",
      given.shown,
      expected,
      given.words.empty() ? "nothing" : fmt::format("'{}'", fmt::join(given.words, " ")),
      row.flag,
      command_names(row.commands & (~row.commands + 1)));
}

int64_t parse_int(const Setting& row,
                  const GivenSetting& given,
                  std::string_view word,
                  const char* expected) {
  int64_t number = 0;
  if (!read_number(word, number)) refuse(row, given, expected);
  return number;
}

double parse_float(const Setting& row, const GivenSetting& given) {
  double number = 0;
  if (!read_number(given.words.front(), number) || !std::isfinite(number))
    refuse(row, given, "a finite number");
  return number;
}

bool parse_bool(const Setting& row, const GivenSetting& given) {
  const std::string& word = given.words.front();
  if (word != "true" && word != "false") refuse(row, given, "true or false");
  return word == "true";
}

/// "[0, 4, 128]" and "(0, 4)" to entries.
std::vector<std::string> bracket_entries(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const bool square = text.front() == '[' && text.back() == ']';
  const bool round = text.front() == '(' && text.back() == ')';
  if (text.size() < 2 || !(square || round)) return {text};
  std::vector<std::string> entries{""};
  for (const char c : text.substr(1, text.size() - 2)) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  // Python allows a comma after the last entry; "[]" is the empty list.
  if (entries.back().empty()) entries.pop_back();
  return entries;
}

/// The entries of a list that is several words or one text in brackets.
std::vector<std::string> list_words(const GivenSetting& given) {
  std::string joined = fmt::format("{}", fmt::join(given.words, " "));
  if (joined.empty() || (joined.front() != '[' && joined.front() != '(')) return given.words;
  return bracket_entries(std::move(joined));
}

std::vector<int64_t> parse_list(const Setting& row, const GivenSetting& given) {
  constexpr const char* kExpected = "integers, as in '0 4 128' or '[0, 4, 128]'";
  std::vector<int64_t> list;
  for (const std::string& word : list_words(given))
    list.push_back(parse_int(row, given, word, kExpected));
  return list;
}

/// Words, without the quotes that printed lists have.
std::vector<std::string> parse_words(const GivenSetting& given) {
  std::vector<std::string> words = list_words(given);
  for (std::string& word : words)
    if (word.size() >= 2 && word.front() == '"' && word.back() == '"')
      word = word.substr(1, word.size() - 2);
  return words;
}

/// A TOML value has a type of its own, which must fit the row's.
bool form_fits(const Setting& row, const GivenSetting& given) {
  using Form = GivenSetting::Form;
  switch (given.form) {
    case Form::Words:
      return true;
    case Form::Number:
      return row.type == SettingType::Int || row.type == SettingType::Float ||
             row.type == SettingType::IntList;
    case Form::Bool:  // of a list of words: all or none of them
      return row.type == SettingType::Bool || row.type == SettingType::WordList;
    case Form::Text:
      return row.type == SettingType::String || row.type == SettingType::Enum || is_list(row.type);
    case Form::List:
      return is_list(row.type);
  }
  fail_internal("settings: unknown form of a value");
}

const char* expected_form(SettingType type) {
  switch (type) {
    case SettingType::Int:
      return "an integer, without quotes or brackets";
    case SettingType::Float:
      return "a number, without quotes or brackets";
    case SettingType::Bool:
      return "true or false, without quotes";
    case SettingType::IntList:
      return "a list of integers";
    case SettingType::WordList:
      return "a list of texts in quotes";
    default:
      return "one text in quotes";
  }
}

SettingValue parse_type(const Setting& row, const GivenSetting& given) {
  if (!form_fits(row, given)) refuse(row, given, expected_form(row.type));
  if (row.type == SettingType::IntList) return parse_list(row, given);
  if (row.type == SettingType::WordList) return parse_words(given);
  if (given.words.size() != 1) refuse(row, given, "one value");
  switch (row.type) {
    case SettingType::Int:
      return parse_int(row, given, given.words.front(), "an integer");
    case SettingType::Float:
      return parse_float(row, given);
    case SettingType::Bool:
      return parse_bool(row, given);
    default:
      return given.words.front();
  }
}

void check_choice(const Setting& row, const GivenSetting& given, const std::string& text) {
  const auto has = [&text](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), text) != list.end();
  };
  LETHE_CHECK(
      ConfigError,
      !has(row.later_choices),
      "{} [not-built]: must be one of {}, got '{}', which the specification knows and this build "
      "does not have yet; {}",
      given.shown,
      fmt::join(row.choices, ", "),
      text,
      row.advice.empty() ? "choose a built one" : row.advice);
  LETHE_CHECK(ConfigError,
              has(row.choices),
              "{} [choice]: must be one of {}, got '{}'; choose one of them",
              given.shown,
              fmt::join(row.choices, ", "),
              text);
}

void check_range(const Setting& row, const GivenSetting& given, const SettingValue& value) {
  double number = 0;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    return;
  }
  LETHE_CHECK(ConfigError,
              row.range.contains(number),
              "{} [range]: must be {}, got {}; {}",
              given.shown,
              row.range.text(),
              given.words.front(),
              row.help);
}

}  // namespace

std::string value_text(const SettingValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted(*text);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  if (const auto* words = std::get_if<std::vector<std::string>>(&value)) {
    std::vector<std::string> shown;
    for (const std::string& word : *words) shown.push_back(quoted(word));
    return fmt::format("[{}]", fmt::join(shown, ", "));
  }
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  return std::get<bool>(value) ? "true" : "false";
}

SettingValue parse_value(const Setting& row,
                         const GivenSetting& given,
                         std::vector<std::string>& notes) {
  SettingValue value = parse_type(row, given);
  if (row.type == SettingType::Enum) check_choice(row, given, std::get<std::string>(value));
  check_range(row, given, value);
  if (row.refine) {
    const std::string broken = row.refine(value, notes);
    LETHE_CHECK(ConfigError,
                broken.empty(),
                "{} [range]: must hold: {}, got {}; {}",
                given.shown,
                broken,
                value_text(value),
                row.help);
  }
  return value;
}

}  // namespace lethe
