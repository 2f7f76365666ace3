#include "lethe/config/toml_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "lethe/base/error.h"
#include "lethe/config/toml_library_impl.h"

namespace lethe {
namespace {

using Form = GivenSetting::Form;

/// One scalar as a word; false where no setting has such a type (dates).
bool read_scalar(const toml::node& node, GivenSetting& given, Form& form) {
  if (const auto* text = node.as_string()) {
    given.words.push_back(text->get());
    form = Form::Text;
  } else if (const auto* whole = node.as_integer()) {
    given.words.push_back(fmt::format("{}", whole->get()));
    form = Form::Number;
  } else if (const auto* real = node.as_floating_point()) {
    given.words.push_back(fmt::format("{}", real->get()));
    form = Form::Number;
  } else if (const auto* truth = node.as_boolean()) {
    given.words.emplace_back(truth->get() ? "true" : "false");
    form = Form::Bool;
  } else {
    return false;
  }
  return true;
}

GivenSetting read_key(const std::string& key, const toml::node& node, const std::string& where) {
  GivenSetting given;
  given.name = key;
  given.origin = fmt::format("{}:{}", where, node.source().begin.line);
  given.shown = fmt::format("{} ({})", key, given.origin);
  Form form = Form::Text;
  bool good = true;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& entry : *list) good = good && read_scalar(entry, given, form);
    form = Form::List;
  } else {
    good = read_scalar(node, given, form);
  }
  LETHE_CHECK(
      ConfigError,
      good,
      "{} [type]: must be a number, a text, true, false or a list of these, got another TOML type; "
      "see lethe train --help for the keys",
      given.shown);
  given.form = form;
  return given;
}

bool is_table_name(std::string_view name) {
  const auto& rows = settings();
  return std::any_of(
      rows.begin(), rows.end(), [&](const Setting& row) { return row.table == name; });
}

std::string table_names() {
  std::set<std::string> names;
  for (const Setting& row : settings()) names.insert(row.table);
  std::string text;
  for (const std::string& name : names)
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", name);
  return text;
}

toml::table parse_text(std::string_view text, const std::string& where) {
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}:{} [toml]: must be TOML, got '{}'; correct the line",
                      where,
                      error.source().begin.line,
                      error.description());
  } catch (const detail::TomlAssertionBroken&) {
    fail<ConfigError>(
        "{} [toml]: must be TOML, got brackets or keys that cannot be read; correct the text",
        where);
  }
}

}  // namespace

std::vector<GivenSetting> parse_toml(std::string_view text, const std::string& where) {
  std::vector<GivenSetting> given;
  for (const auto& [key, node] : parse_text(text, where)) {
    const std::string name(key.str());
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      given.push_back(read_key(name, node, where));
      continue;
    }
    LETHE_CHECK(
        ConfigError,
        is_table_name(name),
        "{}:{} [table]: must be one of {}, got [{}]; table names are documentation only, rename it",
        where,
        node.source().begin.line,
        table_names(),
        name);
    for (const auto& [inner, value] : *table)
      given.push_back(read_key(std::string(inner.str()), value, where));
  }
  return given;
}

std::vector<GivenSetting> read_toml_file(const std::string& path) {
  return parse_toml(read_config_text(path, "--config"), path);
}

std::string read_config_text(const std::string& path, const std::string& shown) {
  std::error_code error;
  LETHE_CHECK(ConfigError,
              !std::filesystem::is_directory(path, error),
              "{} [file]: must name a file, got the folder '{}'; name the file in it",
              shown,
              path);
  std::ifstream file(path, std::ios::binary);
  LETHE_CHECK(ConfigError,
              file.is_open(),
              "{} [file]: must name a readable file, got '{}' ({}); check the path",
              shown,
              path,
              std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  LETHE_CHECK(ConfigError,
              !file.bad(),
              "{} [file]: must be readable to its end, got an error in '{}'; check the disk",
              shown,
              path);
  return text;
}

}  // namespace lethe
