#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/run_config.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/offload/swap_stats.h"
#include "lethe/recompute/recompute.h"
#include "lethe/train/recompute_choice.h"

namespace lethe {

/// What a save unit kept in one step, summed over its layers and micro-batches (spec 3 R6.35).
struct UnitReport {
  std::string unit;        // "experts"
  int64_t kept = 0;        // bytes at the ends of the forwards
  int64_t predicted = 0;   // the same by the plan, for a run that trains every parameter
  int64_t forward_ns = 0;  // of its calls in forward: what a replay of every layer saves
};

/// What recompute did in one step, summed over its regions and micro-batches. Bytes are those at
/// the ends of the forwards (recompute/recompute.h RegionReport).
struct RecomputeReport {
  int64_t forgettable = 0;  // would live until backward without recompute
  int64_t released = 0;     // of these: gone
  int64_t retained = 0;     // of these: alive, because somebody else holds them
  int64_t replays = 0;
  int64_t early_stops = 0;
  int64_t late_restores = 0;
  int64_t replay_ns = 0;
  std::vector<RegionReport> regions;  // in the order of their execution
  std::vector<UnitReport> units;      // those that some layer keeps
};

/// What swap did in one step, summed over its micro-batches.
struct SwapReport {
  SwapStats counts;
  int64_t host_bytes_peak = 0;  // of the host tier, since the run began
};

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
  int64_t live_bytes = 0;                             // all tensors at the end of the step
  int64_t peak_bytes = 0;                             // all tensors, highest of the step
  std::array<int64_t, kNumByteCategories> at_peak{};  // its parts by category; sums to peak_bytes
  std::optional<RecomputeReport> recompute;           // where something is recomputed
  std::optional<SwapReport> swap;                     // where something is swapped
};

/// The first bytes of a run record, as a checkpoint remembers them.
struct RecordMark {
  int64_t num_bytes = 0;
  uint32_t crc = 0;  // CRC-32C
  bool operator==(const RecordMark&) const = default;
};

/// The run record: JSON lines, appended and flushed as the run goes. It says what was computed, and
/// but for tokens_per_second, seconds, replay_ns and forward_ns of recompute, and swap's waits and
/// prefetches it is the same however often the run was interrupted.
///   {"event":"start", ...}, {"event":"operators", ...}, {"event":"step", ...}, {"event":"eval",
///   ...}, {"event":"end", ...}
class RunRecord final {
 public:
  /// Creates the file; a DataError names a path that cannot be written.
  explicit RunRecord(const std::string& path);

  /// Goes on behind the first bytes of an earlier record; what stands behind them is cut off.
  /// DataError when the file does not begin with them.
  RunRecord(const std::string& path, const RecordMark& mark);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  struct Start {
    const RunConfig& config;
    std::string text_unit;                        // "byte" | "token": what a loss is per
    std::map<std::string, std::string> settings;  // every resolved setting, as text
    int64_t parameters = 0;
    int64_t trained_parameters = 0;
    int64_t parameter_bytes = 0;
    int64_t train_tokens = 0;
    int64_t valid_tokens = 0;
    double bigram_loss = 0;
    int threads = 0;
    std::string kernels;                      // chosen_kernels().backend
    std::optional<RecomputeFacts> recompute;  // where something is recomputed
  };

  void start(const Start& facts);
  /// The implementation that ran of every operator that has a kernel; after the first step.
  void operators(int64_t step, const std::map<std::string, std::string>& ran);
  void step(const StepReport& report);
  void eval(int64_t step, double valid_loss);
  /// reason: "finished", "max-seconds", "exit-interval", "signal", "numeric-error"
  void end(int64_t step, const std::string& reason, double seconds);

  /// All that is written by now; it is on the device when the call returns.
  [[nodiscard]] RecordMark sync();

  /// All that is written by now.
  [[nodiscard]] RecordMark mark() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
