#include "lethe/train/checkpointing.h"

#include <ostream>
#include <utility>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/base/log.h"

namespace lethe {
namespace {

CheckpointSaver::Settings saver_settings(const RunConfig& config) {
  const CheckpointConfig& c = config.checkpoint;
  return {.folder = checkpoint_folder(config),
          .retention = {.keep_last = c.keep_last, .retain_interval = c.save_retain_interval},
          .in_background = c.async_save,
          .policy = c.async_save_policy == SavePolicy::Skip ? AsyncSavePolicy::Skip
                                                            : AsyncSavePolicy::Wait};
}

}  // namespace

Checkpointing::Checkpointing(const RunConfig& config,
                             RunIdentity identity,
                             SessionLog& log,
                             std::ostream& out)
    : config_(config.checkpoint),
      identity_(std::move(identity)),
      log_(log),
      out_(out),
      saver_(saver_settings(config)) {}

bool Checkpointing::is_due(int64_t step) const {
  return config_.save_interval > 0 && step % config_.save_interval == 0 && step != last_step_;
}

void Checkpointing::report(const SavedCheckpoint& saved) {
  log_.saved(saved);
  out_ << fmt::format("saved   {}  {}  in {}{}\n",
                      saved.folder.string(),
                      bytes_text(saved.num_bytes),
                      duration_text(saved.seconds),
                      saved.was_there ? "  (the same was there, it stays)" : "")
       << std::flush;
}

// A save that must succeed, or any under --save-failure fatal, throws its failure.
template <class Save>
void Checkpointing::guarded(int64_t step, bool must, Save save) {
  try {
    save();
  } catch (const DataError& error) {
    log_.save_failed(step, error.what());
    if (must || config_.save_failure == SaveFailure::Fatal) throw;
    log_warn(
        "a checkpoint could not be saved by step {}: {}; the run goes on, its last checkpoint is "
        "still there (--save-failure fatal stops instead)",
        step,
        error.what());
  }
}

void Checkpointing::save(const RunState& state,
                         const DeepseekV4& model,
                         const Optimizer& optimizer,
                         bool now) {
  std::exception_ptr earlier;
  guarded(state.step, now, [&] {
    const StateToSave to_save(state, identity_, model, optimizer, config_);
    const SaveOutcome outcome = saver_.save(to_save.parts(), now);
    for (const SavedCheckpoint& saved : outcome.committed) report(saved);
    if (!outcome.left_out) last_step_ = state.step;
    earlier = outcome.earlier_failure;
  });
  guarded(state.step, false, [&] {
    if (earlier) std::rethrow_exception(earlier);
  });
}

void Checkpointing::poll() {
  collect([&] { return saver_.poll(); });
}

void Checkpointing::finish() {
  collect([&] { return saver_.wait(); });
}

// A save in the background that failed is none: its step is due again.
template <class Next>
void Checkpointing::collect(Next next) {
  guarded(last_step_, false, [&] {
    const int64_t step = std::exchange(last_step_, -1);
    const auto saved = next();
    last_step_ = step;
    if (saved) report(*saved);
  });
}

}  // namespace lethe
