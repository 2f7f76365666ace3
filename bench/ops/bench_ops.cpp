// Every operator that has a kernel, at the sizes of DeepSeek-V4-Flash and of the benchmark model:
//   bench_ops [--threads 2] [--quick] [--no-studies] [--out FILE.md] [--benchmark_filter=REGEX] ...
// Peaks of the machine are measured in the same run, before and after (the better one counts). At
// the end one table, and two studies: cores against one core, and cost against length.
#include <algorithm>
#include <iostream>
#include <map>

#include "bench/ops/measure.h"
#include "bench/ops/op_case.h"
#include "bench/ops/studies.h"
#include "bench/support/machine.h"
#include "bench/support/program.h"
#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>

#include <ATen/Parallel.h>

#include "lethe/ops/implementation.h"

namespace {

using lethe::bench::OpCase;
using lethe::bench::OpResult;
using lethe::bench::Pass;
using lethe::bench::Peaks;

struct Options {
  int threads = 0;
  bool quick = false, no_studies = false;
  std::string out, implementation = "auto", config = LETHE_BENCH_CONFIG;
};

Options parse(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  Options o;
  CLI::App app("Operators against the peaks of this machine. Also takes --benchmark_... flags.");
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--out", o.out, "file to which the tables are appended as Markdown");
  app.add_option("--implementation", o.implementation, "auto, none or fused, for all operators");
  app.add_option("--config", o.config, "config.json of the benchmark model");
  app.add_flag("--quick", o.quick, "shorter sequences, one iteration: a look, no figures");
  app.add_flag("--no-studies", o.no_studies, "the operator table alone");
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

lethe::bench::OpCases all_cases(const Options& o) {
  lethe::bench::OpCases cases;
  for (lethe::bench::Shapes shapes :
       {lethe::bench::flash_shapes(), lethe::bench::benchmark_model_shapes()}) {
    if (o.quick) {
      shapes.attention_tokens = 512;
      shapes.dense_tokens = 64;
      shapes.stream_bytes = 4 << 20;
    }
    add_attention_cases(cases, shapes);
    add_indexer_cases(cases, shapes);
    add_stream_cases(cases, shapes);
    add_pointwise_cases(cases, shapes);
    add_expert_cases(cases, shapes);
    add_head_cases(cases, shapes);
    add_linear_cases(cases, shapes);
  }
  return cases;
}

// Google Benchmark calls a benchmark again with more iterations: the last result of a name counts.
struct Results {
  std::vector<std::string> order;
  std::map<std::string, OpResult> by_name;

  void add(const std::string& name, OpResult result) {
    if (by_name.insert_or_assign(name, std::move(result)).second) order.push_back(name);
  }

  [[nodiscard]] std::vector<OpResult> in_order() const {
    std::vector<OpResult> out;
    for (const std::string& name : order) out.push_back(by_name.at(name));
    return out;
  }
};

void register_cases(const lethe::bench::OpCases& cases, const Options& o, Results& results) {
  for (const OpCase& op_case : cases)
    for (const Pass pass : {Pass::Forward, Pass::ForwardBackward}) {
      if (pass == Pass::ForwardBackward && op_case.backward.flops == 0) continue;
      std::string name = op_case.op + "/" + op_case.size +
                         (pass == Pass::Forward ? "/forward" : "/forward+backward");
      std::replace(name.begin(), name.end(), ' ', '_');
      auto* const registered = benchmark::RegisterBenchmark(
          name.c_str(), [&op_case, pass, name, &results](benchmark::State& state) {
            results.add(name, lethe::bench::measure(state, op_case, pass));
          });
      registered->UseRealTime()->Unit(benchmark::kMillisecond);
      // The large ones take seconds each; 3 give a median.
      if (o.quick)
        registered->Iterations(1);
      else if (op_case.forward.flops > 2e10)
        registered->Iterations(3);
    }
}

// Operators with a kernel that no case names: the table must not look complete without them.
std::string not_measured(const lethe::bench::OpCases& cases) {
  std::string names;
  for (const std::string& op : lethe::ops::operators_with_kernels())
    if (std::none_of(cases.begin(), cases.end(), [&](const OpCase& c) { return c.op == op; }))
      names += " " + op;
  return names;
}

void report(const Options& o,
            const Results& results,
            const Peaks& peaks,
            const std::string& missing) {
  const lethe::bench::Table table = result_table(results.in_order(), peaks);
  const std::string head =
      fmt::format("{}\n{} threads: FMA peak {:.1f} GFLOP/s, triad {:.1f} GB/s, both of this run.\n",
                  machine_line(lethe::bench::this_machine()),
                  peaks.threads,
                  peaks.fma_flops / 1e9,
                  peaks.triad_bytes / 1e9);
  const std::string tail =
      missing.empty() ? "" : "Operators with a kernel and without a benchmark:" + missing + "\n";
  std::cout << "\n" << head << "\n" << plain_text(table) << tail << std::flush;
  lethe::bench::append_to_file(o.out, head + "\n" + markdown(table) + "\n" + tail);
}

void report(const Options& o, const lethe::bench::Study& study) {
  std::cout << "\n" << study.text << "\n" << plain_text(study.table) << std::flush;
  lethe::bench::append_to_file(o.out, study.text + "\n" + markdown(study.table) + "\n");
}

void run(const Options& o) {
  lethe::ops::choose_implementations(
      {.all = lethe::ops::parse_implementation(o.implementation), .overrides = {}});
  const int threads = at::get_num_threads();
  Peaks peaks = lethe::bench::measure_peaks(threads);
  const lethe::bench::OpCases cases = all_cases(o);
  Results results;
  register_cases(cases, o, results);
  benchmark::RunSpecifiedBenchmarks();
  const Peaks later = lethe::bench::measure_peaks(threads);
  peaks.fma_flops = std::max(peaks.fma_flops, later.fma_flops);
  peaks.triad_bytes = std::max(peaks.triad_bytes, later.triad_bytes);
  report(o, results, peaks, not_measured(cases));
  if (o.no_studies) return;
  report(o, lethe::bench::attention_scaling(threads, o.quick ? 1 : 7));
  report(o, lethe::bench::csa_layer_growth(o.config, o.quick ? 4096 : 32768));
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("bench_ops", argc, argv, parse, run);
}
