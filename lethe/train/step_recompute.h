#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/swap_config.h"
#include "lethe/offload/layer_input_swap.h"
#include "lethe/plan/saved_bytes.h"
#include "lethe/recompute/layer_tape.h"
#include "lethe/train/recompute_choice.h"
#include "lethe/train/run_record.h"

namespace lethe {

/// The host tier of a run, and how the inputs of layers go there and back.
struct SwapTier {
  SwapPolicy policy;
  std::shared_ptr<SwapBackend> backend;
};

/// The tier that the settings describe: --offload-budget-mb of memory, or of a file in
/// --offload-folder. checked: bytes that come back are compared. DataError where there is no such
/// folder, or no room.
[[nodiscard]] SwapTier make_swap_tier(const SwapConfig& config, int64_t num_layers, bool checked);

/// Recompute and swap of one micro-batch: its tape and its record, and what the report of the step
/// learns from them. Where nothing is recomputed and swapped it is nothing: no tape is made, and
/// the engine is not touched.
class MicroBatchTape final {
 public:
  /// choice: null or an empty plan = everything stays; it outlives the graph. tier: not null where
  /// the plan swaps.
  MicroBatchTape(const RecomputeChoice* choice,
                 int64_t micro_batch,
                 const SwapTier* tier = nullptr);

  MicroBatchTape(const MicroBatchTape&) = delete;
  MicroBatchTape& operator=(const MicroBatchTape&) = delete;

  /// To be destroyed after the graph, or in the place of its backward: what is swapped is lost.
  ~MicroBatchTape();

  /// For the model's forward.
  [[nodiscard]] RecomputePass pass();

  /// Between forward and backward, when the saved bytes are at their most: takes the bytes. Throws
  /// RecomputeError [DC5] where the plan has checks, everything trains, and a region has not freed
  /// what the plan predicts for a micro-batch of this shape, or its save units keep something else.
  void forward_done(const MicroBatchShape& shape);

  /// After backward: takes what was replayed and swapped, and adds it to the report. Throws
  /// RecomputeError where the plan has checks and a region was replayed more than once [DC3], or
  /// bytes are left in the host tier [DC4].
  void backward_done(StepReport& report);

 private:
  void check_freed(const MicroBatchShape& shape) const;
  void report_recompute(std::optional<RecomputeReport>& report);
  void report_swap(std::optional<SwapReport>& report) const;

  const RecomputeChoice* choice_;  // null: everything stays
  int64_t micro_batch_;
  std::optional<Tape> tape_;
  const SwapTier* tier_ = nullptr;
  std::optional<LayerInputSwap> swap_;
  std::vector<RegionReport> regions_;                    // as of the end of forward
  std::map<std::string, std::vector<UnitBytes>> units_;  // predicted, by region
};

/// Where the plan has checks: throws RecomputeError [DC4] if a region of a step is still there, or
/// a storage without its bytes. To be called between two steps.
void expect_nothing_left(const RecomputeChoice* choice);

}  // namespace lethe
