#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lethe/config/run_config.h"
#include "lethe/io/checkpoint_folder.h"

namespace lethe {

/// What a training run is asked for.
struct TrainRequest {
  RunConfig config;
  std::string hub_kept = "{}";  // keys of the user's config.json that the model's one repeats
  std::string settings_text;    // print_config(), for checkpoints
  std::map<std::string, std::string> settings;  // what decides the result, for the run record
  std::optional<OpenedCheckpoint> checkpoint;   // of --load
};

/// What a finished run reports.
struct TrainResult {
  int64_t steps = 0;
  double valid_loss = 0;     // nats per token on the fixed validation set; NaN = not evaluated
  std::string model_folder;  // config.json + model.safetensors, hub names
  std::string record_file;   // run.jsonl
  std::string reason;        // as in the run record's end
  int signal = 0;            // the signal that ended the run early, 0 = none
};

/// One training run: data, model, optimizer, loop, checkpoints and records (spec 0 3.3 train).
///
/// Writes into config.train.output: run.jsonl, sessions.jsonl, tensorboard/ and (--recompute-stats)
/// the files of train/recompute_trace.h as the run goes, checkpoints/ (or --save), and at the end
/// model/. Nothing is written before text, shapes, recompute plan and folders have been checked.
/// Goes on from a checkpoint bit for bit, whatever each process recomputes: parameters, optimizer,
/// data and record are then those of a run that was never interrupted. Throws ConfigError,
/// DataError, CheckpointError, RecomputeError (a plan that does not fit) before the first step;
/// NumericError when a loss or a gradient is not finite: the state of the last good step is then
/// saved, and the batch and statistics of the layers are in a folder that the message names;
/// RecomputeError when a replay differs from its forward, after that save. Two runs of the same
/// configuration and thread count give the same bits.
class Trainer final {
 public:
  /// out: receives the lines for people.
  Trainer(TrainRequest request, std::ostream& out);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs to --train-iters, --exit-interval, --max-seconds or a stop signal.
  TrainResult run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
