#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "lethe/config/run_config.h"

namespace lethe {

/// What a finished run reports.
struct TrainResult {
  int64_t steps = 0;
  double valid_loss = 0;   // nats per token on the fixed validation set
  double bigram_loss = 0;  // nats per byte that a table of byte pairs reaches on the training text
  std::string model_folder;  // config.json + model.safetensors, hub names
  std::string record_file;   // run.jsonl
  int signal = 0;            // the signal that ended the run early, 0 = none
};

/// One training run: text, model, optimizer, loop and run record (spec 0 3.3 train).
///
/// Writes into config.train.output: run.jsonl (one JSON object per line, appended as the run goes)
/// and, at the end, model/. Nothing is written before text, shapes and folder have been checked.
/// Throws ConfigError, DataError before the first step; NumericError when a loss or a gradient is
/// not finite: parameters are then those of the last good step, and are saved before the error
/// leaves. Two runs of the same configuration and thread count give the same bits.
class Trainer final {
 public:
  /// hub_kept: keys of the user's config.json that the model's one repeats ("{}" = none).
  /// out: receives the lines for people.
  Trainer(const RunConfig& config, std::string hub_kept, std::ostream& out);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs to --train-iters, --max-seconds or a stop signal.
  TrainResult run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
