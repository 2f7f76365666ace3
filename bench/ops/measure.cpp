#include "bench/ops/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "bench/support/median.h"
#include <benchmark/benchmark.h>

#include <ATen/ops/randn_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;
using at::Tensor;

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t sum = 0;
  for (const Tensor& t : tensors)
    if (t.defined()) sum += static_cast<int64_t>(t.nbytes());
  return sum;
}

// One case with its tensors, ready to run again and again.
class Runner final {
 public:
  Runner(const OpCase& op_case, Pass pass) : operands_(op_case.make()), pass_(pass) {
    if (pass_ == Pass::ForwardBackward)
      for (const Tensor& leaf : operands_.leaves) leaf.set_requires_grad(true);
  }

  /// The first run: makes the gradients of the results, and counts temporary bytes.
  int64_t warm_up() {
    std::optional<at::NoGradGuard> no_grad;
    if (pass_ == Pass::Forward) no_grad.emplace();
    reset_peak();
    const std::vector<Tensor> results = operands_.forward();
    const ByteReport forward = bytes();
    int64_t temporaries = forward.peak - forward.live;
    if (pass_ == Pass::Forward) return temporaries;
    for (const Tensor& result : results) d_results_.push_back(at::randn_like(result.detach()));
    const int64_t before = bytes().live;
    reset_peak();
    torch::autograd::backward(results, d_results_);
    temporaries = std::max(temporaries, bytes().peak - before - bytes_of(gradients()));
    drop_gradients();
    return temporaries;
  }

  double seconds() {
    std::optional<at::NoGradGuard> no_grad;
    if (pass_ == Pass::Forward) no_grad.emplace();
    const auto start = Clock::now();
    {
      const std::vector<Tensor> results = operands_.forward();
      if (pass_ == Pass::ForwardBackward) torch::autograd::backward(results, d_results_);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    drop_gradients();
    return seconds;
  }

 private:
  [[nodiscard]] std::vector<Tensor> gradients() const {
    std::vector<Tensor> out;
    for (const Tensor& leaf : operands_.leaves) out.push_back(leaf.grad());
    return out;
  }

  void drop_gradients() {
    for (const Tensor& leaf : operands_.leaves) leaf.mutable_grad().reset();
  }

  Operands operands_;
  Pass pass_;
  std::vector<Tensor> d_results_;
};

std::string implementation_of(const std::string& op) {
  const auto ran = ops::implementations_that_ran();
  const auto found = ran.find(op);
  if (found != ran.end()) return found->second;
  // An operator of several parts, or one without a kernel.
  std::string text;
  for (const auto& [name, implementation] : ran)
    text += (text.empty() ? "" : ", ") + name + " " + implementation;
  return text.empty() ? "reference" : text;
}

std::string number(double value, double unit, const char* format = "{:.1f}") {
  return fmt::format(fmt::runtime(format), value / unit);
}

}  // namespace

OpResult measure(benchmark::State& state, const OpCase& op_case, Pass pass) {
  ops::reset_implementations_that_ran();
  Runner runner(op_case, pass);
  OpResult result{.op = op_case.op, .size = op_case.size, .pass = pass, .work = op_case.forward};
  result.temporary_bytes = runner.warm_up();
  if (pass == Pass::ForwardBackward) {
    result.work.flops += op_case.backward.flops;
    result.work.bytes += op_case.backward.bytes;
  }
  std::vector<double> seconds;
  for (auto _ : state) seconds.push_back(runner.seconds());
  result.seconds = median(seconds);
  result.implementation = implementation_of(op_case.op);
  state.counters["GFLOP/s"] = result.work.flops / result.seconds / 1e9;
  state.counters["GB/s"] = result.work.bytes / result.seconds / 1e9;
  state.counters["temporary_MB"] = static_cast<double>(result.temporary_bytes) / 1e6;
  state.SetLabel(result.implementation);
  return result;
}

double roofline_share(const OpResult& r, const Peaks& peaks) {
  return std::max(r.work.flops / peaks.fma_flops, r.work.bytes / peaks.triad_bytes) / r.seconds;
}

Table result_table(const std::vector<OpResult>& results, const Peaks& peaks) {
  Table table{.headings = {"operator",
                           "size",
                           "pass",
                           "implementation",
                           "ms",
                           "GFLOP/s",
                           "% of FMA",
                           "GB/s",
                           "% of triad",
                           "% of roofline",
                           "temporary MB"},
              .rows = {},
              .left = 4};
  for (const OpResult& r : results) {
    const double flops = r.work.flops / r.seconds, bandwidth = r.work.bytes / r.seconds;
    table.rows.push_back({r.op,
                          r.size,
                          r.pass == Pass::Forward ? "forward" : "forward+backward",
                          r.implementation,
                          number(r.seconds, 1e-3, "{:.2f}"),
                          number(flops, 1e9),
                          number(flops, peaks.fma_flops / 100),
                          number(bandwidth, 1e9),
                          number(bandwidth, peaks.triad_bytes / 100),
                          number(roofline_share(r, peaks), 0.01),
                          number(static_cast<double>(r.temporary_bytes), 1e6)});
  }
  return table;
}

}  // namespace lethe::bench
