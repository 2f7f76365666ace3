// What the recompute engine costs per saved tensor where it has nothing to forget: an operator that
// saves its output, without a scope and inside one (gate test S12 of spec 3 2.5: less than a
// microsecond more).
//   build-bench/bin/bench_recompute
#include <benchmark/benchmark.h>

#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>

#include "lethe/recompute/recompute.h"

namespace {

void save_one_tensor(benchmark::State& state) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  for (auto _ : state) benchmark::DoNotOptimize(x.exp());
}

void without_scope(benchmark::State& state) {
  save_one_tensor(state);
}

void in_scope(benchmark::State& state) {
  lethe::Tape tape;
  const lethe::TapeScope scope(tape);
  save_one_tensor(state);
}

BENCHMARK(without_scope);
BENCHMARK(in_scope);

}  // namespace

BENCHMARK_MAIN();
