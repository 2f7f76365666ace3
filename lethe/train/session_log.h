#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "lethe/io/checkpoint_saver.h"
#include "lethe/io/line_file.h"
#include "lethe/train/process_facts.h"

namespace lethe {

/// sessions.jsonl of a run's folder: what its processes did, and when, one JSON line each. The run
/// record says what was computed and is the same however often the run was interrupted; this file
/// says the rest.
///   {"event":"started", "time":T, "host":H, "pid":P, "step":0, "threads":N,
///    "kernels":K, "plan":H}                    what computes, e.g. "fused (avx2)"; plan_hash() of
///                                              the plan, where something is recomputed or swapped
///   {"event":"resumed", "time":T, "host":H, "pid":P, "step":S, "threads":N, "kernels":K, "plan":H,
///    "checkpoint":FOLDER, "changed":{KEY:[BEFORE, NOW], ...}}       settings that the resume
///    changed
///   {"event":"saved", "time":T, "step":S, "folder":FOLDER, "bytes":B, "seconds":X,
///    "removed":[STEP, ...]}                    older ones that retention removed
///   {"event":"save_failed", "time":T, "step":S, "error":TEXT, "failures":N}
///   {"event":"stopped", "time":T, "step":S, "reason":R, "seconds":X}
/// T: seconds since 1970. Failures to write are DataError.
class SessionLog final {
 public:
  explicit SessionLog(const std::filesystem::path& folder);

  void started(const ProcessFacts& process);
  /// before, now: deciding_settings() of the checkpoint and of this process.
  void resumed(int64_t step,
               const ProcessFacts& process,
               const std::filesystem::path& checkpoint,
               const std::map<std::string, std::string>& before,
               const std::map<std::string, std::string>& now);
  void saved(const SavedCheckpoint& saved);
  void save_failed(int64_t step, const std::string& error);
  void stopped(int64_t step, const std::string& reason, double seconds);

 private:
  void append(const nlohmann::ordered_json& line);

  LineFile file_;
  int64_t failures_ = 0;
};

}  // namespace lethe
