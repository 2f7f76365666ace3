#include "lethe/config/settings_table_impl.h"

namespace lethe::detail {

SettingRow& SettingRow::alias(std::initializer_list<const char*> names) {
  row_.aliases.assign(names.begin(), names.end());
  return *this;
}

SettingRow& SettingRow::at_least(double bound) {
  row_.range.min = bound;
  return *this;
}

SettingRow& SettingRow::above(double bound) {
  row_.range.min = bound;
  row_.range.min_open = true;
  return *this;
}

SettingRow& SettingRow::at_most(double bound) {
  row_.range.max = bound;
  return *this;
}

SettingRow& SettingRow::below(double bound) {
  row_.range.max = bound;
  row_.range.max_open = true;
  return *this;
}

SettingRow& SettingRow::choices(std::vector<std::string> built, std::vector<std::string> later) {
  row_.type = SettingType::Enum;
  row_.choices = std::move(built);
  row_.later_choices = std::move(later);
  return *this;
}

SettingRow& SettingRow::required() {
  row_.required = true;
  return *this;
}

SettingRow& SettingRow::from_hub() {
  row_.in_hub_config = true;
  return *this;
}

SettingRow& SettingRow::note(std::string text) {
  row_.note = std::move(text);
  return *this;
}

SettingRow& SettingRow::default_note(const char* text) {
  row_.default_note = text;
  return *this;
}

SettingRow& SettingRow::refine(
    std::function<std::string(SettingValue&, std::vector<std::string>&)> check) {
  row_.refine = std::move(check);
  return *this;
}

SettingRow& SettingRow::accepts(std::function<bool(const RunConfig&, const SettingValue&)> check) {
  row_.accepts = std::move(check);
  return *this;
}

SettingRow& SettingRow::commands(CommandSet set) {
  row_.commands = set;
  return *this;
}

SettingRow& SettingRow::on_resume(OnResume rule) {
  row_.on_resume = rule;
  return *this;
}

void SettingTable::section(const char* table,
                           const char* group,
                           CommandSet commands,
                           OnResume on_resume) {
  table_ = table;
  group_ = group;
  commands_ = commands;
  on_resume_ = on_resume;
}

SettingRow SettingTable::row(const char* flag,
                             SettingType type,
                             SettingStatus status,
                             const char* help) {
  Setting& added = rows_.emplace_back();
  added.flag = flag;
  added.table = table_;
  added.group = group_;
  added.type = type;
  added.status = status;
  added.commands = commands_;
  added.on_resume = on_resume_;
  added.help = help;
  return SettingRow(added);
}

SettingRow SettingTable::constant(const char* flag,
                                  SettingValue value,
                                  const char* help,
                                  const char* advice) {
  constexpr SettingType kTypes[] = {SettingType::Int,
                                    SettingType::Float,
                                    SettingType::Bool,
                                    SettingType::String,
                                    SettingType::IntList,
                                    SettingType::WordList};
  SettingRow added = row(flag, kTypes[value.index()], SettingStatus::Constant, help);
  rows_.back().advice = advice;
  rows_.back().get = [value](const RunConfig&) -> std::optional<SettingValue> { return value; };
  return added;
}

void SettingTable::not_built(const char* advice, std::initializer_list<const char*> flags) {
  for (const char* flag : flags) {
    row(flag, SettingType::String, SettingStatus::NotBuilt, "");
    rows_.back().advice = advice;
  }
}

}  // namespace lethe::detail
