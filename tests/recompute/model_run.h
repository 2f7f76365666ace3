#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/offload/swap_stats.h"
#include "lethe/plan/saved_bytes.h"
#include "lethe/recompute/recompute.h"

namespace lethe::test {

/// What may change the bits of a run, besides what is recomputed.
struct RunCase {
  bool bf16 = false;  // storage of the weights
  int threads = 1;
  bool packed = false;  // several documents per micro-batch
  bool mtp = true;
  int micro_batches = 1;
  auto operator<=>(const RunCase&) const = default;

  [[nodiscard]] std::string text() const;
};

/// All 32.
std::vector<RunCase> run_cases();

ModelConfig model_of(const RunCase& which);
PlanSubject subject_of(const RunCase& which);

/// Named bytes, in the order of their making: compare with memcmp.
using Values = std::vector<std::pair<std::string, std::string>>;

struct ModelRun {
  Values values;
  // Of all micro-batches of the last step: bytes at the end of forward, counts after backward.
  std::vector<RegionReport> forgotten, replayed;
  int64_t saved_bytes = 0;  // activations at the end of the first forward
  SwapStats swapped;        // of all micro-batches of the last step
  int64_t host_bytes = 0;   // in the host tier after the last step
};

/// Three steps of training with every loss: losses, indexer losses, expert counts, gradients of all
/// parameters and of every layer's output, random state, and at the end parameters and biases.
ModelRun train_three_steps(const RunCase& which, const RecomputePlan& plan);

/// Behind each step, numbered from 0: what there is of the run, its model still alive.
using AfterStep = std::function<void(int step, const ModelRun& run)>;

/// The same for a number of steps.
ModelRun train_steps(const RunCase& which,
                     const RecomputePlan& plan,
                     int num_steps,
                     const AfterStep& after_step = {});

/// Of every micro-batch.
MicroBatchShape shape_of(const RunCase& which);

/// "" where all values are equal, else the first that differs.
std::string first_difference(const Values& expected, const Values& actual);

/// A way to recompute, by name.
struct RecomputeMode {
  std::string name;
  RecomputePlan plan;
};

/// Every setting by itself and the combinations that people use; "none" first.
std::vector<RecomputeMode> recompute_modes(const PlanSubject& subject);

/// A random choice for each layer: whole with a random set of save units, nested, or random parts;
/// its input swapped or not.
RecomputePlan random_plan(const PlanSubject& subject, uint64_t seed);

}  // namespace lethe::test
