#include "lethe/config/settings_schema.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/config/settings_table_impl.h"
#include "lethe/config/settings_value.h"

namespace lethe {
namespace {

struct CommandName {
  CommandSet bit;
  std::string_view name;
};

constexpr std::array<CommandName, 8> kCommandNames{{{command::kTrain, "train"},
                                                    {command::kGenerate, "generate"},
                                                    {command::kTokenize, "tokenize"},
                                                    {command::kPrepare, "data prepare"},
                                                    {command::kRuns, "runs"},
                                                    {command::kCompare, "compare"},
                                                    {command::kUnits, "units"},
                                                    {command::kDocs, "docs"}}};

std::string with_underscores(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<Setting> make_settings() {
  detail::SettingTable table;
  detail::add_source_settings(table);
  detail::add_model_settings(table);
  detail::add_train_settings(table);
  detail::add_checkpoint_settings(table);
  detail::add_command_settings(table);
  detail::add_implementation_settings(table);
  detail::add_recompute_settings(table);
  detail::add_swap_settings(table);
  detail::add_not_built_settings(table);
  return std::move(table.rows());
}

std::map<std::string, const Setting*> make_index() {
  std::map<std::string, const Setting*> index;
  const auto add = [&index](std::string_view name, const Setting& row) {
    if (!index.emplace(with_underscores(name), &row).second)
      fail_internal(fmt::format("settings: the name '{}' stands in two rows", name));
  };
  for (const Setting& row : settings()) {
    add(row.flag, row);
    for (const std::string& alias : row.aliases) add(alias, row);
  }
  return index;
}

}  // namespace

CommandSet command_bit(std::string_view name) {
  for (const CommandName& command : kCommandNames)
    if (command.name == name) return command.bit;
  return 0;
}

std::string command_names(CommandSet set) {
  std::vector<std::string_view> names;
  for (const CommandName& command : kCommandNames)
    if ((set & command.bit) != 0) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool SettingRange::contains(double value) const {
  if (min && (min_open ? value <= *min : value < *min)) return false;
  return !(max && (max_open ? value >= *max : value > *max));
}

std::string SettingRange::text() const {
  std::vector<std::string> parts;
  if (min) parts.push_back(fmt::format("{} {:g}", min_open ? ">" : ">=", *min));
  if (max) parts.push_back(fmt::format("{} {:g}", max_open ? "<" : "<=", *max));
  return fmt::format("{}", fmt::join(parts, " and "));
}

std::string Setting::key() const {
  return with_underscores(flag);
}

std::string Setting::rule() const {
  std::vector<std::string> parts;
  if (!choices.empty()) parts.push_back(fmt::format("one of {}", fmt::join(choices, ", ")));
  if (const std::string bounds = range.text(); !bounds.empty()) parts.push_back(bounds);
  if (!note.empty()) parts.push_back(note);
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string Setting::default_text() const {
  if (!default_note.empty()) return default_note;
  if (required) return "required";
  const std::optional<SettingValue> value = get ? get(built_in_config()) : std::nullopt;
  if (!value) return "not set";
  return type == SettingType::Enum ? std::get<std::string>(*value) : value_text(*value);
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> rows = make_settings();
  return rows;
}

const Setting* find_setting(std::string_view name) {
  static const std::map<std::string, const Setting*> index = make_index();
  const auto found = index.find(with_underscores(name));
  return found == index.end() ? nullptr : found->second;
}

std::string_view type_name(SettingType type) {
  switch (type) {
    case SettingType::Int:
      return "int";
    case SettingType::Float:
      return "float";
    case SettingType::Bool:
      return "bool";
    case SettingType::String:
      return "string";
    case SettingType::Enum:
      return "enum";
    case SettingType::IntList:
      return "int list";
    case SettingType::WordList:
      return "word list";
  }
  fail_internal("settings: unknown type");
}

RunConfig built_in_config() {
  RunConfig config;
  config.model.yarn = YarnScaling{};
  return config;
}

}  // namespace lethe
