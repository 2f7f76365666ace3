// What the recompute engine costs where it has nothing to forget. Per saved tensor: an operator
// that saves its output, without a scope and inside one (gate test S12 of spec 3 2.5: less than a
// microsecond more). Per node of a layer: a sub-graph and its event, called by themselves and
// through the tape of a layer that recomputes nothing. Per operator: what a trace and a watch add.
//   build-bench/bin/bench_recompute
#include <benchmark/benchmark.h>

#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/core/live_blocks.h"
#include "lethe/recompute/layer_tape.h"
#include "lethe/recompute/recompute.h"
#include "lethe/recompute/region_trace.h"

namespace {

void save_one_tensor(benchmark::State& state) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  for (auto _ : state) benchmark::DoNotOptimize(x.exp());
}

// What looking adds to an operator: in a region while a trace lives, and while blocks are watched.
void operator_in_region(benchmark::State& state) {
  lethe::Tape tape;
  const lethe::TapeScope scope(tape);
  const at::Tensor x = at::ones({4});
  static_cast<void>(tape.run({.name = "part"},
                             [&](const lethe::Tensors& in) {
                               for (auto _ : state) benchmark::DoNotOptimize(x.exp());
                               return in;
                             },
                             {x}));
}

void operator_traced(benchmark::State& state) {
  const lethe::RegionTrace trace;
  operator_in_region(state);
}

void operator_watched(benchmark::State& state) {
  const lethe::BlockWatch watch;
  operator_in_region(state);
}

void without_scope(benchmark::State& state) {
  save_one_tensor(state);
}

void in_scope(benchmark::State& state) {
  lethe::Tape tape;
  const lethe::TapeScope scope(tape);
  save_one_tensor(state);
}

// What a node does: a function of a tensor that captures a weight.
lethe::RegionFn passes_on(const at::Tensor& weight) {
  return [weight](const lethe::Tensors& in) -> lethe::Tensors { return {in[0]}; };
}

void node_called(benchmark::State& state) {
  const at::Tensor x = at::ones({4}).requires_grad_(), weight = at::ones({4});
  for (auto _ : state) benchmark::DoNotOptimize(passes_on(weight)({x}));
}

void node_on_inactive_tape(benchmark::State& state) {
  const at::Tensor x = at::ones({4}).requires_grad_(), weight = at::ones({4});
  const lethe::LayerTape tape("L0");
  for (auto _ : state) {
    benchmark::DoNotOptimize(tape.run(lethe::SubgraphId::MlpNorm, passes_on(weight), {x}));
    tape.event(lethe::Event::MlpNormEnd, x);
  }
}

BENCHMARK(without_scope);
BENCHMARK(in_scope);
BENCHMARK(node_called);
BENCHMARK(node_on_inactive_tape);
BENCHMARK(operator_in_region);
BENCHMARK(operator_traced);
BENCHMARK(operator_watched);

}  // namespace

int main(int argc, char** argv) {
  lethe::install_byte_accounting();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
