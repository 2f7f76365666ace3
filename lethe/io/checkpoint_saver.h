#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lethe/io/checkpoint_folder.h"

namespace lethe {

/// A checkpoint that is on disk under its name, with LATEST pointing to it.
struct SavedCheckpoint {
  int64_t step = 0;
  std::filesystem::path folder;
  int64_t num_bytes = 0;         // of all tensors
  double seconds = 0;            // from the request to the commit
  bool was_there = false;        // a valid one of the same step stayed
  std::vector<int64_t> removed;  // steps that retention removed
};

/// What became of one request.
struct SaveOutcome {
  std::vector<SavedCheckpoint> committed;  // meanwhile, oldest first
  std::exception_ptr earlier_failure;      // of the save that was under way; this one went on
  bool left_out = false;                   // by AsyncSavePolicy::Skip, which logs it
};

/// A second save while one is under way: wait for it, or leave the second one out.
enum class AsyncSavePolicy { Wait, Skip };

/// Writes checkpoints into one folder, at once or by a thread of its own (spec 6 4.5).
///
/// Used at step boundaries, by one thread. A save in the background works on copies that are made
/// before save() returns (host memory, not counted as tensors), is committed by the next poll() or
/// wait() after the thread is done, and its failure is thrown there: never inside the thread, never
/// swallowed. One save at a time. The destructor waits for the thread and drops what it wrote.
class CheckpointSaver {
 public:
  struct Settings {
    std::filesystem::path folder;
    Retention retention;
    bool in_background = false;
    AsyncSavePolicy policy = AsyncSavePolicy::Wait;
  };

  /// Makes the folder where missing, and prunes it: a killed process may have left something.
  explicit CheckpointSaver(Settings settings);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Saves, or starts to. With `now` in this thread and committed on return, whatever the settings;
  /// a save under way is waited for first. Throws what this save's own writing throws.
  [[nodiscard]] SaveOutcome save(const CheckpointParts& parts, bool now);

  /// Commits the save in the background if it is written. Throws its failure.
  std::optional<SavedCheckpoint> poll();

  /// Waits for the save in the background, if any, and commits it. Throws its failure.
  std::optional<SavedCheckpoint> wait();

 private:
  struct Job;
  std::vector<int64_t> tidy();
  SavedCheckpoint commit(const std::filesystem::path& unfinished, const Job& job);

  Settings settings_;
  std::unique_ptr<Job> job_;
};

}  // namespace lethe
