#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/run_config.h"

namespace lethe {

/// What one optimizer step reports. Losses are means in nats per counted token.
struct StepReport {
  int64_t step = 0;                    // 1 = the first
  double loss = 0;                     // main
  std::optional<double> loss_mtp;      // mean over depths
  std::optional<double> loss_kl;       // mean over layers with an indexer, per token
  std::optional<double> loss_balance;  // with its coefficient, summed over layers
  double grad_norm = 0;                // before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;
  int64_t saved_bytes =
      0;  // activations alive when the loss is formed: live - parameters - gradients - optimizer
  int64_t live_bytes = 0;  // all tensors at the end of the step
  int64_t peak_bytes = 0;  // all tensors, highest of the step
};

/// The run record: JSON lines, appended and flushed as the run goes.
///   {"event":"start", ...}, {"event":"step", ...}, {"event":"eval", ...}, {"event":"end", ...}
class RunRecord final {
 public:
  /// Creates the file; a DataError names a path that cannot be written.
  explicit RunRecord(const std::string& path);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  struct Start {
    const RunConfig& config;
    int64_t parameters = 0;
    int64_t trained_parameters = 0;
    int64_t parameter_bytes = 0;
    int64_t train_tokens = 0;
    int64_t valid_tokens = 0;
    double bigram_loss = 0;
    int threads = 0;
  };

  void start(const Start& facts);
  void step(const StepReport& report);
  void eval(int64_t step, double valid_loss);
  /// reason: "finished", "max-seconds", "signal", "numeric-error"
  void end(int64_t step, const std::string& reason, double seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
