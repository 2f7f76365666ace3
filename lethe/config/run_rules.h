#pragma once

#include <span>
#include <string>
#include <vector>

#include "lethe/config/settings_layer.h"

namespace lethe {

/// A rule between several settings of a run.
struct RunRule {
  const char* id;    // "T1", as errors show it
  const char* flag;  // where an error points
  const char* text;  // what must hold
  /// "must be ..., got ...; ..."; empty where the rule holds.
  std::string (*broken)(const RunConfig& config);
};

/// The rules of lethe train, in the order they are checked.
[[nodiscard]] std::span<const RunRule> train_rules();

/// Settings that a user gave and that this configuration does not read: an error from the command
/// line, a note from a file (a printed configuration has them all). Rule "U".
void check_unused(const RunConfig& config,
                  const SettingLayer& given,
                  ErrorList& errors,
                  std::vector<std::string>& notes);

/// True where a main layer or MTP block has an indexer.
[[nodiscard]] bool has_indexer(const ModelConfig& model);

}  // namespace lethe
