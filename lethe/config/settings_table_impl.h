#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lethe/config/settings_schema.h"

// How the rows of config/settings_*.cpp are written down. Not installed.
namespace lethe::detail {

/// Completes the row that SettingTable just added.
class SettingRow {
 public:
  explicit SettingRow(Setting& row) : row_(row) {}

  SettingRow& alias(std::initializer_list<const char*> names);
  SettingRow& at_least(double bound);
  SettingRow& above(double bound);
  SettingRow& at_most(double bound);
  SettingRow& below(double bound);
  SettingRow& choices(std::vector<std::string> built, std::vector<std::string> later = {});
  SettingRow& required();
  SettingRow& from_hub();
  SettingRow& note(std::string text);
  SettingRow& default_note(const char* text);
  SettingRow& refine(std::function<std::string(SettingValue&, std::vector<std::string>&)> check);
  SettingRow& accepts(std::function<bool(const RunConfig&, const SettingValue&)> check);
  SettingRow& commands(CommandSet set);
  SettingRow& on_resume(OnResume rule);

 private:
  Setting& row_;
};

template <class T>
struct IsOptional : std::false_type {};

template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Value = T;
};

template <class T>
constexpr SettingType type_of() {
  if constexpr (IsOptional<T>::value) {
    return type_of<typename IsOptional<T>::Value>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return SettingType::Int;
  } else if constexpr (std::is_same_v<T, double>) {
    return SettingType::Float;
  } else if constexpr (std::is_same_v<T, bool>) {
    return SettingType::Bool;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return SettingType::String;
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return SettingType::IntList;
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>, "no setting type for this member");
    return SettingType::WordList;
  }
}

class SettingTable {
 public:
  /// Rows that follow belong here and have this rule on a resume.
  void section(const char* table,
               const char* group,
               CommandSet commands,
               OnResume on_resume = OnResume::Same);

  /// A setting with its own accessors.
  SettingRow row(const char* flag, SettingType type, SettingStatus status, const char* help);

  /// A setting that is the member `field` of the part `part`.
  template <class Part, class T>
  SettingRow bind(const char* flag, Part RunConfig::*part, T Part::*field, const char* help) {
    SettingRow added = row(flag, type_of<T>(), SettingStatus::Active, help);
    Setting& s = rows_.back();
    s.get = [part, field](const RunConfig& c) -> std::optional<SettingValue> {
      const T& value = c.*part.*field;
      if constexpr (IsOptional<T>::value) {
        return value ? std::optional<SettingValue>(*value) : std::nullopt;
      } else {
        return SettingValue(value);
      }
    };
    s.set = [part, field](RunConfig& c, const SettingValue& value) {
      if constexpr (IsOptional<T>::value) {
        c.*part.*field = std::get<typename IsOptional<T>::Value>(value);
      } else {
        c.*part.*field = std::get<T>(value);
      }
    };
    return added;
  }

  /// An enumeration member; names are in the order of the enumerators.
  template <class Part, class E>
  SettingRow bind_enum(const char* flag,
                       Part RunConfig::*part,
                       E Part::*field,
                       std::vector<std::string> names,
                       const char* help) {
    SettingRow added = row(flag, SettingType::Enum, SettingStatus::Active, help);
    Setting& s = rows_.back();
    s.get = [part, field, names](const RunConfig& c) -> std::optional<SettingValue> {
      return SettingValue(names[static_cast<size_t>(c.*part.*field)]);
    };
    s.set = [part, field, names](RunConfig& c, const SettingValue& value) {
      const std::string& text = std::get<std::string>(value);
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == text) c.*part.*field = static_cast<E>(i);
      }
    };
    s.choices = std::move(names);
    return added;
  }

  /// A setting with one right value: stated, never chosen.
  SettingRow constant(const char* flag, SettingValue value, const char* help, const char* advice);

  /// A setting that must repeat another one's value.
  template <class Part, class T>
  SettingRow mirror(const char* flag,
                    Part RunConfig::*part,
                    T Part::*field,
                    const char* help,
                    const char* advice) {
    SettingRow added = row(flag, type_of<T>(), SettingStatus::Constant, help);
    rows_.back().advice = advice;
    rows_.back().get = [part, field](const RunConfig& c) -> std::optional<SettingValue> {
      return SettingValue(c.*part.*field);
    };
    return added;
  }

  /// Flags that the specification knows and this build lacks.
  void not_built(const char* advice, std::initializer_list<const char*> flags);

  [[nodiscard]] std::vector<Setting>& rows() { return rows_; }

 private:
  std::vector<Setting> rows_;
  std::string table_, group_;
  CommandSet commands_ = 0;
  OnResume on_resume_ = OnResume::Same;
};

/// refine() for a text that must not be empty.
std::string refuse_empty(SettingValue& value, std::vector<std::string>& notes);

void add_source_settings(SettingTable& t);          // settings_model.cpp
void add_model_settings(SettingTable& t);           // settings_model.cpp
void add_model_part_settings(SettingTable& t);      // settings_model_parts.cpp
void add_train_settings(SettingTable& t);           // settings_train.cpp
void add_checkpoint_settings(SettingTable& t);      // settings_checkpoint.cpp
void add_recompute_settings(SettingTable& t);       // settings_recompute.cpp
void add_swap_settings(SettingTable& t);            // settings_swap.cpp
void add_command_settings(SettingTable& t);         // settings_commands.cpp
void add_implementation_settings(SettingTable& t);  // settings_implementation.cpp
void add_not_built_settings(SettingTable& t);       // settings_not_built.cpp

}  // namespace lethe::detail
