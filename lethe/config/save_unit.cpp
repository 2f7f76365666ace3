#include "lethe/config/save_unit.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/base/nearest.h"

namespace lethe {
namespace {

constexpr std::array<SaveUnit, 6> kUnits = {SaveUnit::Attn,
                                            SaveUnit::MoeGate,
                                            SaveUnit::MoeDispatch,
                                            SaveUnit::Experts,
                                            SaveUnit::Mhc,
                                            SaveUnit::Compressor};
constexpr std::array<std::string_view, 6> kNames = {
    "attn", "moe_gate", "moe_dispatch", "experts", "mhc", "compressor"};

SaveUnit read_unit(const std::string& word, std::string_view where) {
  if (const std::optional<SaveUnit> unit = find_save_unit(word)) return *unit;
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  fail<ConfigError>("{} [save-unit]: must name save units ({}), all or none, got '{}'; {}",
                    where,
                    fmt::join(kNames, ", "),
                    word,
                    did_you_mean(word, names, "choose one of them"));
}

}  // namespace

std::span<const SaveUnit> save_units() {
  return kUnits;
}

std::string_view save_unit_name(SaveUnit unit) {
  return kNames[static_cast<size_t>(unit)];
}

std::optional<SaveUnit> find_save_unit(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return kUnits[static_cast<size_t>(found - kNames.begin())];
}

SaveSelection read_save_units(const std::vector<std::string>& words, std::string_view where) {
  SaveSelection selection;
  if (words.size() == 1 && (words[0] == "all" || words[0] == "true")) {
    selection.kind = SaveSelection::Kind::All;
    return selection;
  }
  if (words.empty() || (words.size() == 1 && (words[0] == "none" || words[0] == "false")))
    return selection;
  selection.kind = SaveSelection::Kind::Listed;
  for (const std::string& word : words) {
    const bool whole = word == "all" || word == "none" || word == "true" || word == "false";
    LETHE_CHECK(ConfigError,
                !whole,
                "{} [save-unit]: must be units, or all or none alone, got '{}' beside others; keep "
                "one of the two",
                where,
                word);
    const SaveUnit unit = read_unit(word, where);
    auto& units = selection.units;
    LETHE_CHECK(ConfigError,
                std::find(units.begin(), units.end(), unit) == units.end(),
                "{} [save-unit]: must name every unit once, got '{}' twice; leave one out",
                where,
                word);
    units.push_back(unit);
  }
  return selection;
}

std::vector<std::string> save_unit_words(const SaveSelection& selection) {
  if (selection.kind == SaveSelection::Kind::All) return {"all"};
  std::vector<std::string> words;
  for (const SaveUnit unit : selection.units) words.emplace_back(save_unit_name(unit));
  return words;
}

}  // namespace lethe
