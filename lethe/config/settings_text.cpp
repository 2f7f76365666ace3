#include "lethe/config/settings_text.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "lethe/config/recompute_rules.h"
#include "lethe/config/run_rules.h"
#include "lethe/config/settings_value.h"
#include "lethe/config/validate.h"

namespace lethe {
namespace {

constexpr size_t kColumns = 100;

std::string origin_of(const ResolvedSettings& resolved, const std::string& key) {
  const auto found = resolved.provenance.find(key);
  return found == resolved.provenance.end() ? "built-in" : found->second;
}

void print_row(const ResolvedSettings& resolved, const Setting& row, std::string& out) {
  const std::optional<SettingValue> value = row.get(resolved.config);
  const std::string origin =
      row.status == SettingStatus::Constant ? "constant" : origin_of(resolved, row.key());
  const std::string line = value ? fmt::format("{} = {}", row.key(), value_text(*value))
                                 : fmt::format("# {} is not set", row.key());
  out += fmt::format("{:<48}  # {}\n", line, origin);
}

void print_rules(CommandSet command, std::string& out) {
  out += "\n# Rules checked:\n";
  for (const Setting& row : settings()) {
    if (row.status == SettingStatus::NotBuilt || !row.applies_to(command) || row.rule().empty())
      continue;
    out += fmt::format("#   {}: {}\n", row.key(), row.rule());
  }
  if ((command & command::kShape) == 0) return;
  for (const ModelRule& rule : model_rules())
    out += fmt::format("#   [{}] {}\n", rule.id, rule.text);
  if (command != command::kTrain) return;
  for (const auto rules : {train_rules(), recompute_rules()})
    for (const RunRule& rule : rules) out += fmt::format("#   [{}] {}\n", rule.id, rule.text);
  out += "#   [U] a setting given on the command line is read\n";
}

/// text broken at spaces, each further line behind indent spaces.
std::string wrapped(const std::string& text, size_t first_column, size_t indent) {
  std::string out;
  size_t column = first_column;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column + word.size() + 1 > kColumns && column > indent) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    begin = end + 1;
  }
  return out;
}

std::string flag_synopsis(const Setting& row) {
  switch (row.type) {
    case SettingType::Bool:
      return fmt::format("--[no-]{}", row.flag);
    case SettingType::Int:
      return fmt::format("--{} N", row.flag);
    case SettingType::Float:
      return fmt::format("--{} X", row.flag);
    case SettingType::IntList:
      return fmt::format("--{} N ...", row.flag);
    case SettingType::WordList:
      return fmt::format("--{} NAME ...", row.flag);
    case SettingType::Enum:
      return fmt::format("--{} NAME", row.flag);
    case SettingType::String:
      return fmt::format("--{} TEXT", row.flag);
  }
  fail_internal("settings: unknown type");
}

std::string help_row(const Setting& row) {
  constexpr size_t kIndent = 8;
  std::string text = row.help;
  const std::string rule = row.rule();
  text += fmt::format(" [{}{}{}{}]",
                      row.required ? "" : "default ",
                      row.default_text(),
                      rule.empty() ? "" : "; ",
                      rule);
  if (!row.aliases.empty()) text += fmt::format(" Also: --{}.", fmt::join(row.aliases, ", --"));
  return fmt::format("  {}\n{}{}\n",
                     flag_synopsis(row),
                     std::string(kIndent, ' '),
                     wrapped(text, kIndent, kIndent));
}

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string markdown_row(const Setting& row) {
  std::string names = fmt::format("`{}`", flag_synopsis(row));
  for (const std::string& alias : row.aliases) names += fmt::format("<br>`--{}`", alias);
  return fmt::format("| {} | `{}` | {} | {} | {} | {} | {} |\n",
                     names,
                     row.key(),
                     type_name(row.type),
                     escaped(row.default_text()),
                     escaped(row.rule()),
                     escaped(row.help),
                     command_names(row.commands));
}

std::string not_built_markdown() {
  std::string out =
      "\n## Not built yet\n\nThe specification knows these flags; this build refuses them and says "
      "so.\n";
  std::string group, advice;
  for (const Setting& row : settings()) {
    if (row.status != SettingStatus::NotBuilt) continue;
    if (row.group != group) out += fmt::format("\n### {}\n", row.group);
    out += row.group != group || row.advice != advice
               ? fmt::format("\nInstead: {}.\n`--{}`", row.advice, row.flag)
               : fmt::format(" `--{}`", row.flag);
    group = row.group;
    advice = row.advice;
  }
  return out + "\n";
}

}  // namespace

std::string print_config(const ResolvedSettings& resolved) {
  const CommandSet command = command_bit(resolved.command);
  std::string out = fmt::format("# lethe {}: every setting, with its source\n", resolved.command);
  if (!resolved.recipe.empty())
    out += fmt::format("# recipe {} ({})\n", resolved.recipe, origin_of(resolved, "recipe"));
  if (!resolved.hf_config.empty())
    out +=
        fmt::format("# hf_config {} ({})\n", resolved.hf_config, origin_of(resolved, "hf_config"));
  std::string table;
  for (const Setting& row : settings()) {
    if (!row.get || row.status == SettingStatus::NotBuilt || !row.applies_to(command)) continue;
    if (row.table != table) out += fmt::format("\n[{}]\n", row.table);
    table = row.table;
    print_row(resolved, row, out);
  }
  print_rules(command, out);
  return out;
}

std::map<std::string, std::string> deciding_settings(const RunConfig& config) {
  std::map<std::string, std::string> out;
  for (const Setting& row : settings()) {
    const bool decides = row.on_resume == OnResume::Same || row.on_resume == OnResume::Changeable;
    if (row.status != SettingStatus::Active || !row.applies_to(command::kTrain) || !decides)
      continue;
    if (const auto value = row.get(config)) out[row.key()] = value_text(*value);
  }
  return out;
}

std::string settings_help(CommandSet command) {
  std::string out, group;
  for (const Setting& row : settings()) {
    if (row.status == SettingStatus::NotBuilt || !row.applies_to(command)) continue;
    if (row.group != group) out += fmt::format("\n{}:\n", row.group);
    group = row.group;
    out += help_row(row);
  }
  return out;
}

std::string settings_markdown() {
  std::string out =
      "# Settings\n\nGenerated by `lethe docs` from the settings table; do not edit. A key is the "
      "flag with `_`\n"
      "instead of `-`, in a TOML file given by `--config`; table names there are documentation "
      "only.\n";
  std::string group;
  for (const Setting& row : settings()) {
    if (row.status == SettingStatus::NotBuilt) continue;
    if (row.group != group)
      out += fmt::format(
          "\n## {}\n\n| flag | key | type | default | rule | meaning | commands |\n"
          "|---|---|---|---|---|---|---|\n",
          row.group);
    group = row.group;
    out += markdown_row(row);
  }
  return out + not_built_markdown();
}

}  // namespace lethe
