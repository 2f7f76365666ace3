#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/run_config.h"
#include "lethe/config/settings_value.h"

namespace lethe {

/// What a checkpoint says about the run that wrote it.
struct CheckpointSettings {
  std::string text;    // print_config() of that run
  std::string origin;  // "checkpoint out/train/checkpoints/step-0000000100"
  std::string hub_kept = "{}";
};

/// What a user asked for, before any of it is checked.
struct SettingsRequest {
  std::string command = "train";
  std::vector<std::string> config_files;         // TOML; a later one wins
  std::vector<GivenSetting> command_line;        // wins over the files
  std::optional<CheckpointSettings> checkpoint;  // of --load (requested_checkpoint)
  std::vector<std::string> errors;  // found while reading the command line; reported with the rest
};

/// A configuration that keeps every rule, and where each value came from.
struct ResolvedSettings {
  std::string command;
  RunConfig config;
  std::string recipe;           // empty = none
  std::string hf_config;        // folder; empty = none
  std::string hub_kept = "{}";  // JSON: keys of its config.json without a meaning here, for export
  std::map<std::string, std::string>
      provenance;                  // key -> "built-in", "recipe tiny", "a.toml:3", ...
  std::vector<std::string> notes;  // for the log: repeats, normalisations, unused values
};

/// Which checkpoint a request goes on from.
struct CheckpointRequest {
  std::string folder;  // --load, or `load` in a file; empty = a new run
  bool allow_fallback = false;
};

/// Read before resolve(): the caller opens the checkpoint and puts its settings into the request.
/// Errors are left to resolve().
[[nodiscard]] CheckpointRequest requested_checkpoint(const SettingsRequest& request);

/// Built-in values < recipe, or the checkpoint's settings < files, in their order < command line;
/// no environment. A checkpoint brings every setting but those of one process; a file or the
/// command line may repeat them, or change those that may change (OnResume). With --finetune it
/// brings the shape of the model only. A folder given by --hf-config sets the shape, with which
/// every other source must agree. Throws one ConfigError with every broken rule. Pure but for
/// reading the named files; idempotent.
[[nodiscard]] ResolvedSettings resolve(const SettingsRequest& request);

}  // namespace lethe
