#include "bench/recompute/replay_cost.h"

#include <iostream>
#include <vector>

#include "bench/support/median.h"
#include "bench/support/node_time.h"
#include <fmt/format.h>

#include <ATen/Parallel.h>

namespace lethe::bench {
namespace {

// One number of every round.
struct Rounds {
  std::vector<double> values;

  void add(double value) { values.push_back(value); }

  [[nodiscard]] std::string seconds() const { return fmt::format("{:.3f} s", median(values)); }

  [[nodiscard]] std::string ratio() const {
    return fmt::format(
        "{:.2f} ({:.2f} to {:.2f})", median(values), quartile(values, 1), quartile(values, 3));
  }
};

// What was measured against one prediction.
struct Against {
  Rounds predicted, extra, replays;

  void add(double prediction, double extra_seconds, double replay_seconds) {
    predicted.add(prediction);
    extra.add(extra_seconds / prediction);
    replays.add(replay_seconds / prediction);
  }

  [[nodiscard]] std::string text(const char* name) const {
    return fmt::format("{}: {} predicted, extra {} of it, replays {}.",
                       name,
                       predicted.seconds(),
                       extra.ratio(),
                       replays.ratio());
  }
};

}  // namespace

std::string replay_cost(ModelStep& step, const RecomputePlan& whole, int64_t seq, int64_t rounds) {
  const std::vector<NodeWork> work = replay_work(step.config(), seq);
  Rounds extra, replays, of_forward, flops, bytes;
  Against ideal, with_mm;
  for (int64_t round = 0; round < rounds; ++round) {
    const double none = step.step(nullptr), forward = step.forward_seconds();
    const Peaks peaks = measure_peaks(at::get_num_threads());
    GemmRates rates;
    const NodeTime least = total_time(work, peaks, rates);
    const double more = step.step(nullptr, whole) - none;
    extra.add(more);
    replays.add(step.replay_seconds());
    of_forward.add(step.replay_seconds() / forward);
    flops.add(peaks.fma_flops / 1e9);
    bytes.add(peaks.triad_bytes / 1e9);
    ideal.add(least.ideal, more, replays.values.back());
    with_mm.add(least.with_mm, more, replays.values.back());
    std::cerr << fmt::format("replay of everything: S={} round {}/{}\n", seq, round + 1, rounds);
  }
  return fmt::format(
      "Everything discarded: {} more a step, replays {}, {} of the model's forward; medians of {} "
      "rounds with quartiles. Against the forward of the layers at the peaks of the same round "
      "({:.1f} GFLOP/s, triad {:.1f} GB/s):\n"
      "{}\n{}\n",
      extra.seconds(),
      replays.seconds(),
      of_forward.ratio(),
      rounds,
      median(flops.values),
      median(bytes.values),
      with_mm.text("Plain products at the rate of at::mm, the rest at the peaks"),
      ideal.text("Everything at the peaks"));
}

}  // namespace lethe::bench
