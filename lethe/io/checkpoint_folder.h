#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lethe/io/checkpoint_manifest.h"
#include "lethe/io/safetensors.h"

namespace lethe {

/// A folder of checkpoints (spec 6 4.2):
///   FOLDER/LATEST                    "step-0000000100\n"
///   FOLDER/step-0000000100/          manifest.json, common.json, *.safetensors
///   FOLDER/.tmp-step-N-NONCE/        a save under way, or what a killed one left
///   FOLDER/.trash-step-N-NONCE/      a removal under way
/// One process at a time may write (io/folder_lock.h); reading needs no lock.

/// What one save writes.
struct CheckpointParts {
  struct File {
    std::string name;  // "w-00000-of-00001.safetensors"
    std::vector<TensorToStore> tensors;
  };

  int64_t step = 0;
  int64_t contract_version = 0;
  std::string writer;
  std::map<std::string, int64_t> layout;
  std::string common;  // text of common.json
  std::vector<File> files;
  bool sha256 = false;  // of the data files too
};

/// "step-0000000100"
[[nodiscard]] std::string step_name(int64_t step);

/// Steps that have a folder under their final name, ascending. Says nothing about their content.
[[nodiscard]] std::vector<int64_t> steps_in(const std::filesystem::path& folder);

/// The step that LATEST names; none when there is no LATEST. CheckpointError [E-CKPT-LATEST] when
/// it names no step.
[[nodiscard]] std::optional<int64_t> latest_step(const std::filesystem::path& folder);

/// Writes a whole checkpoint under a temporary name beside its place and syncs it; returns that
/// folder. On any failure (DataError: disk full, ...) the temporary folder is removed and nothing
/// else was touched. Touches no file outside the temporary folder.
[[nodiscard]] std::filesystem::path write_unfinished(const std::filesystem::path& folder,
                                                     const CheckpointParts& parts);

/// Gives the written checkpoint its name and points LATEST to it, each move synced (spec 6 4.6). A
/// whole checkpoint of the same step and content stays and the new one is dropped (returns false);
/// any other is replaced.
bool commit_checkpoint(const std::filesystem::path& folder,
                       const std::filesystem::path& unfinished,
                       int64_t step);

/// Points LATEST to a step, durably: after a fallback, before anything else is written.
void set_latest(const std::filesystem::path& folder, int64_t step);

/// Which checkpoints stay: the newest keep_last, every step divisible by retain_interval (0 = none
/// more), and always the one of LATEST.
struct Retention {
  int64_t keep_last = 2;
  int64_t retain_interval = 0;
};

/// Removes the others, and what killed saves and removals left; steps beyond LATEST, which a
/// fallback left behind, are neither counted nor removed. What cannot be removed is logged. Returns
/// the removed steps.
std::vector<int64_t> prune(const std::filesystem::path& folder, const Retention& retention);

/// A checkpoint that was read and proven.
class OpenedCheckpoint {
 public:
  /// Proves the folder of one step: manifest, sizes, sha256 where taken, CRC of every chunk.
  /// CheckpointError names the file, the chunk and the rule: [E-CKPT-FILE] absent or of another
  /// size, [E-CKPT-SHA256], [E-CKPT-CRC], [E-CKPT-STEP] a manifest of another step, and what
  /// parse_manifest and SafetensorsFile throw.
  explicit OpenedCheckpoint(const std::filesystem::path& step_folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  [[nodiscard]] const CheckpointManifest& manifest() const { return manifest_; }

  [[nodiscard]] const std::string& common() const { return common_; }

  /// What LATEST named when open_latest found this one; nothing when it was opened by its own name.
  [[nodiscard]] std::optional<int64_t> latest() const { return latest_; }

  void set_latest(std::optional<int64_t> step) { latest_ = step; }

  /// The safetensors file of that name; CheckpointError [E-CKPT-FILE] where there is none.
  [[nodiscard]] const SafetensorsFile& file(const std::string& name) const;

 private:
  void check_chunks() const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::string common_;
  std::optional<int64_t> latest_;
  std::map<std::string, SafetensorsFile> files_;
};

/// The checkpoint that LATEST names. When it is damaged: CheckpointError [E-CKPT-DAMAGED] that
/// names it and the reason, or, with allow_fallback, the newest older one that is whole, with both
/// steps in `message`. contract_version must be expected (E-CKPT-CONTRACT). A folder of another
/// program is E-CKPT-FOREIGN, one without checkpoints E-CKPT-NONE. Nothing is changed on disk.
[[nodiscard]] OpenedCheckpoint open_latest(const std::filesystem::path& folder,
                                           int64_t contract_version,
                                           bool allow_fallback,
                                           std::string& message);

}  // namespace lethe
