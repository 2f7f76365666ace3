#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "lethe/config/run_config.h"
#include "lethe/io/event_file.h"
#include "lethe/io/folder_lock.h"
#include "lethe/train/run_record.h"
#include "lethe/train/session_log.h"

namespace lethe {

/// The folder of the run's checkpoints: --save, or OUTPUT/checkpoints.
[[nodiscard]] std::filesystem::path checkpoint_folder(const RunConfig& config);

/// Where a run goes on.
struct ResumePoint {
  RecordMark record;
  int64_t step = 0;
  std::optional<int64_t> latest;  // what LATEST named when the checkpoint was opened
};

/// The folder of a run and what stands in it beside model and checkpoints: run.jsonl,
/// sessions.jsonl, tensorboard/. Locked against other processes while the object
/// lives, as is the folder of the checkpoints.
class RunFiles final {
 public:
  /// Takes the folders for a new run, or for one that goes on at `resume`.
  /// Throws DataError when another process holds a lock, or has saved since the checkpoint was
  /// opened; ConfigError when a new run finds one, or checkpoints, in its place and --overwrite is
  /// not given. Nothing is changed before the locks are held; with --overwrite the earlier run is
  /// then removed.
  RunFiles(const RunConfig& config, const std::optional<ResumePoint>& resume);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  [[nodiscard]] RunRecord& record() { return *record_; }

  [[nodiscard]] SessionLog& sessions() { return *sessions_; }

  /// To record, event file and the log of regions.
  void step(const StepReport& report);
  void eval(int64_t step, double valid_loss);

  /// To the session log; what was written before is on the device afterwards.
  void stopped(int64_t step, const std::string& reason, double seconds);

 private:
  std::filesystem::path folder_;
  std::optional<FolderLock> lock_, save_lock_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<SessionLog> sessions_;
  std::optional<EventFile> events_;
};

}  // namespace lethe
