#include "lethe/config/settings_layer.h"

#include <algorithm>

#include "lethe/base/nearest.h"

namespace lethe {
namespace {

bool is_flag(const GivenSetting& given) {
  return given.shown.rfind('-', 0) == 0;
}

void assign(SettingLayer& layer,
            std::map<std::string, std::string>& written,
            const Setting& row,
            const GivenSetting& given,
            SettingValue value) {
  const std::string key = row.key();
  const auto [place, added] =
      layer.emplace(key, AssignedSetting{std::move(value), given.origin, given.shown});
  if (added) {
    written[key] = given.name;
    return;
  }
  LETHE_CHECK(ConfigError,
              written[key] != given.name,
              "{} [repeat]: must be given once, got it again beside {}; keep one of them",
              given.shown,
              place->second.shown);
  LETHE_CHECK(ConfigError,
              place->second.value == value,
              "{} [alias]: must equal {}, which names the same setting and says {}, got {}; keep "
              "one of them",
              given.shown,
              place->second.shown,
              value_text(place->second.value),
              value_text(value));
}

}  // namespace

const Setting& usable_setting(CommandSet command,
                              const GivenSetting& given,
                              const std::vector<std::string>& other_names) {
  const bool as_flag = is_flag(given);
  const Setting* row = find_setting(given.name);
  // Keys have underscores and flags dashes; find_setting takes both.
  if (row == nullptr || given.name.find(as_flag ? '_' : '-') != std::string::npos) {
    std::vector<std::string> names = accepted_names(command, as_flag);
    names.insert(names.end(), other_names.begin(), other_names.end());
    const std::string word = as_flag ? given.shown : given.name;
    const std::string otherwise = fmt::format("see lethe {} --help", command_names(command));
    fail<ConfigError>("{} [unknown]: must be a setting of lethe {}, got an unknown name; {}",
                      given.shown,
                      command_names(command),
                      did_you_mean(word, names, otherwise));
  }
  LETHE_CHECK(ConfigError,
              row->status != SettingStatus::NotBuilt,
              "{} [not-built]: must be a setting of this build, got one that the specification "
              "knows and this build does not have yet ({}); {}",
              given.shown,
              row->group,
              row->advice);
  LETHE_CHECK(ConfigError,
              row->applies_to(command),
              "{} [command]: must be a setting of lethe {}, got one of lethe {}; leave it out",
              given.shown,
              command_names(command),
              command_names(row->commands));
  return *row;
}

SettingLayer read_layer(CommandSet command,
                        const std::vector<GivenSetting>& given,
                        ErrorList& errors,
                        std::vector<std::string>& notes) {
  SettingLayer layer;
  std::map<std::string, std::string> written;  // key -> the name that was used first
  for (const GivenSetting& one : given) {
    errors.collect([&] {
      const Setting& row = usable_setting(command, one);
      assign(layer, written, row, one, parse_value(row, one, notes));
    });
  }
  return layer;
}

void merge_layer(SettingLayer& base,
                 const SettingLayer& over,
                 bool log_conflicts,
                 std::vector<std::string>& notes) {
  for (const auto& [key, assigned] : over) {
    const auto [place, added] = base.emplace(key, assigned);
    if (added) continue;
    if (log_conflicts && place->second.value != assigned.value)
      notes.push_back(fmt::format("{}: {} says {}, {} says {} and wins",
                                  key,
                                  place->second.origin,
                                  value_text(place->second.value),
                                  assigned.origin,
                                  value_text(assigned.value)));
    place->second = assigned;
  }
}

std::vector<std::string> accepted_names(CommandSet command, bool as_flags) {
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (!as_flags) std::replace(name.begin(), name.end(), '-', '_');
    names.push_back(as_flags ? "--" + name : name);
  };
  for (const Setting& row : settings()) {
    if (row.status == SettingStatus::NotBuilt || !row.applies_to(command)) continue;
    add(row.flag);
    for (const std::string& alias : row.aliases) add(alias);
    if (as_flags && row.type == SettingType::Bool) add("no-" + row.flag);
  }
  return names;
}

}  // namespace lethe
