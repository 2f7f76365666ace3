#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/support/op_profile.h"

#include "lethe/model/deepseek_v4.h"
#include "lethe/train/recompute_trace.h"
#include "lethe/train/step_recompute.h"

namespace lethe::bench {

/// The model and the one row of a measured step.
struct ModelStepOptions {
  std::string model;   // folder with config.json and model.safetensors, or
  std::string config;  // config.json alone: Lethe's random weights
  std::string ids;     // text file of token ids; empty: random ones
  int64_t seq = 512;
  uint64_t seed = 0;  // of random ids and weights
  bool indexer_loss = false;
  std::string offload_folder;  // of the host tier of plans that swap; empty: memory
};

/// Forward and backward of a model over one document. The loss is the mean over the shifted ids.
class ModelStep final {
 public:
  /// Throws ConfigError, DataError for options that name no model or ids.
  explicit ModelStep(const ModelStepOptions& options);

  /// Seconds of one forward and backward. Gradients are there at its end and freed after the clock.
  /// `profile` and `trace` may be null; an empty plan recomputes nothing.
  double step(OpProfile* profile, const RecomputePlan& plan = {}, RecomputeTrace* trace = nullptr);

  [[nodiscard]] double loss() const { return loss_; }

  /// Of the last step: seconds of its forward, and of its replays.
  [[nodiscard]] double forward_seconds() const { return forward_seconds_; }

  [[nodiscard]] double replay_seconds() const { return replay_seconds_; }

  /// Of the last step.
  [[nodiscard]] const std::vector<RegionReport>& regions() const { return regions_; }

  /// Of the last step: counted live bytes between forward and backward above those before it.
  [[nodiscard]] int64_t saved_bytes() const { return saved_bytes_; }

  [[nodiscard]] const ModelConfig& config() const { return model_->config(); }

  [[nodiscard]] int64_t parameters() const { return model_->params().total_elements(); }

 private:
  std::unique_ptr<DeepseekV4> model_;
  MicroBatch batch_;
  LossFactors factors_;
  double loss_ = 0, forward_seconds_ = 0, replay_seconds_ = 0;
  int64_t saved_bytes_ = 0;
  std::vector<RegionReport> regions_;
  std::string offload_folder_;
  std::optional<SwapTier> tier_;
};

}  // namespace lethe::bench
