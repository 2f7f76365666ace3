#include "bench/ops/studies.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "bench/ops/measure.h"
#include "bench/ops/op_case.h"
#include "bench/support/machine.h"
#include "bench/support/median.h"
#include "bench/support/peaks.h"
#include "bench/support/step_work.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/config/hub_config.h"
#include "lethe/io/atomic_file.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/model/init.h"

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double forward_seconds(const Operands& operands) {
  const at::NoGradGuard no_grad;
  const auto start = Clock::now();
  const auto results = operands.forward();
  return seconds_since(start);
}

// One layer of ratio 4 of a model, alone, over streams of random numbers.
class CsaLayer final {
 public:
  explicit CsaLayer(const ModelConfig& whole) : config_(only_csa(whole)), model_(config_, {}) {
    initialize(config_, model_.params(), /*seed=*/1);
    model_.params().set_trained([](const ParamRow& row) { return !is_indexer_param(row); });
  }

  [[nodiscard]] double flops(int64_t tokens) const {
    return total_flops(layer_work(config_, 0, tokens));
  }

  double seconds(int64_t tokens) const {
    const std::vector<int64_t> ids(static_cast<size_t>(tokens), 1);
    const std::vector<int32_t> cu{0, static_cast<int32_t>(tokens)};
    const MicroBatch batch = make_micro_batch(ids, ids, cu, config_.ratios);
    RunTally tally = model_.make_tally();
    LayerState state{.pass =
                         std::make_shared<const ForwardPass>(ForwardPass{batch, {}, {}, tally})};
    const at::Tensor streams =
        normal({tokens, config_.streams, config_.hidden}).set_requires_grad(true);
    const at::Tensor d_streams = normal(streams.sizes());
    state.streams = streams;
    const auto start = Clock::now();
    for (const Node& node : model_.program(0)) node.run(state);
    torch::autograd::backward({state.streams}, {d_streams});
    const double seconds = seconds_since(start);
    for (size_t i = 0; i < model_.params().size(); ++i)
      model_.params().value(i).mutable_grad().reset();
    return seconds;
  }

 private:
  static ModelConfig only_csa(ModelConfig config) {
    config.num_layers = 1;
    config.ratios = {kCsaRatio};
    config.num_hash_layers = 0;
    config.num_mtp = 0;
    return config;
  }

  ModelConfig config_;
  DeepseekV4 model_;
};

}  // namespace

Study attention_scaling(int threads, int64_t repeats) {
  OpCases cases;
  Shapes shapes = flash_shapes();
  shapes.attention_tokens = 1024;
  add_attention_cases(cases, shapes);
  const Operands operands = cases.front().make();
  std::map<int, std::vector<double>> seconds;
  std::map<int, double> peak;
  for (int64_t i = 0; i <= repeats; ++i)
    for (int n = 1; n <= threads; ++n) {
      at::set_num_threads(n);
      const double now = forward_seconds(operands);
      if (i > 0) seconds[n].push_back(now);
      peak[n] = std::max(peak[n], fma_peak(n));
    }
  at::set_num_threads(threads);
  Study study{.table = {.headings = {"threads", "ms", "faster", "FMA peak grows", "of that"}}};
  study.text =
      fmt::format("Sparse attention forward, {}, cores against one (last cache {:.0f} MiB).\n",
                  cases.front().size,
                  static_cast<double>(this_machine().last_cache_bytes) / (1 << 20));
  for (int n = 1; n <= threads; ++n) {
    const double gain = median(seconds[1]) / median(seconds[n]), fma = peak[n] / peak[1];
    study.table.rows.push_back({std::to_string(n),
                                fmt::format("{:.1f}", 1e3 * median(seconds[n])),
                                fmt::format("{:.2f}x", gain),
                                fmt::format("{:.2f}x", fma),
                                fmt::format("{:.2f}", gain / fma)});
  }
  return study;
}

Study csa_layer_growth(const std::string& config_path, int64_t longest) {
  const CsaLayer layer(parse_hub_config(read_text_file(config_path), config_path).model);
  Study study{
      .text = "One CSA layer of the benchmark model, forward and backward (best of 3).\n",
      .table = {
          .headings = {
              "S", "us a token", "MFLOP a token", "time grows", "FLOPs grow", "time / FLOPs"}}};
  double first_time = 0, first_flops = 0;
  for (int64_t tokens = 2048; tokens <= longest; tokens *= 2) {
    double best = layer.seconds(tokens);
    for (int i = 0; i < 2; ++i) best = std::min(best, layer.seconds(tokens));
    const double time = best / static_cast<double>(tokens);
    const double flops = layer.flops(tokens) / static_cast<double>(tokens);
    if (first_time == 0) first_time = time, first_flops = flops;
    study.table.rows.push_back({std::to_string(tokens),
                                fmt::format("{:.1f}", 1e6 * time),
                                fmt::format("{:.2f}", flops / 1e6),
                                fmt::format("{:.2f}x", time / first_time),
                                fmt::format("{:.2f}x", flops / first_flops),
                                fmt::format("{:.2f}", time / first_time / (flops / first_flops))});
  }
  return study;
}

}  // namespace lethe::bench
