#pragma once

#include <iosfwd>

#include "lethe/io/checkpoint_saver.h"
#include "lethe/train/run_files.h"
#include "lethe/train/training_state.h"

namespace lethe {

/// Saves a run's states and tells people and the session log about it. Failures follow
/// --save-failure: they end the run, or are reported and the run goes on with its last checkpoint.
class Checkpointing final {
 public:
  Checkpointing(const RunConfig& config, RunIdentity identity, SessionLog& log, std::ostream& out);

  /// Whether --save-interval asks for a save after this step.
  [[nodiscard]] bool is_due(int64_t step) const;

  /// The state is on disk (`now`), or on its way there (--async-save). With `now` a failure is
  /// thrown, whatever --save-failure says: nobody will try again.
  void save(const RunState& state, const DeepseekV4& model, const Optimizer& optimizer, bool now);

  /// At every step boundary: commits a save in the background that is written.
  void poll();

  /// Before the process ends: waits for a save in the background and commits it. After a failure
  /// last_step() is -1: the state is not saved.
  void finish();

  /// The step of the last save that was asked for or loaded; -1 = none.
  [[nodiscard]] int64_t last_step() const { return last_step_; }

  void set_loaded(int64_t step) { last_step_ = step; }

 private:
  template <class Save>
  void guarded(int64_t step, bool must, Save save);
  template <class Next>
  void collect(Next next);
  void report(const SavedCheckpoint& saved);

  CheckpointConfig config_;
  RunIdentity identity_;
  SessionLog& log_;
  std::ostream& out_;
  CheckpointSaver saver_;
  int64_t last_step_ = -1;
};

}  // namespace lethe
