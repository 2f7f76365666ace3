// What looking costs: steps with regions' statistics, the trace and the census on, against steps
// without, alternating (issue figure: under 1 %).
//   build-bench/bin/bench_trace --config bench/peers/model.json [--seq 1024] [--rounds 11]
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench/support/median.h"
#include "bench/support/model_step.h"
#include "bench/support/program.h"
#include "bench/support/recompute_settings.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace {

namespace fs = std::filesystem;

using lethe::bench::ModelStep;

struct Options {
  lethe::bench::ModelStepOptions model;
  std::string recompute = "csa+norm+mhc", out = fs::temp_directory_path() / "bench_trace";
  int64_t rounds = 11, threads = 0;
};

Options parse(int argc, char** argv) {
  Options o;
  o.model.seq = 1024;
  CLI::App app("What statistics, trace and census cost, in alternating steps.");
  app.add_option("--config", o.model.config, "config.json of the model")->required();
  app.add_option("--seq", o.model.seq, "tokens of the one row")->check(CLI::PositiveNumber);
  app.add_option("--recompute", o.recompute, "a setting of bench_pareto");
  app.add_option("--rounds", o.rounds, "pairs of steps; one more warms up")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--out", o.out, "folder for what the steps write")->capture_default_str();
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

void run(const Options& o) {
  ModelStep step(o.model);
  const lethe::RecomputePlan plan = lethe::bench::plan_of(o.recompute, step.config(), false);
  fs::create_directories(o.out);
  lethe::RecomputeTrace trace(o.out,
                              lethe::PlanSubject::of(step.config()),
                              plan,
                              {.first_step = 1, .num_steps = o.rounds + 1});
  std::vector<double> ratios, plain;
  for (int64_t round = 0; round <= o.rounds; ++round) {
    const double off = step.step(nullptr, plan);
    trace.begin_step(round + 1);
    const double on = step.step(nullptr, plan, &trace);
    trace.end_step(step.regions());
    if (round == 0) continue;
    plain.push_back(off);
    ratios.push_back(on / off);
  }
  std::cout << fmt::format(
      "S={}, {}: {:.3f} s a step, {:.4f} of it with everything on (median of {} pairs, {:.4f} to "
      "{:.4f})\n",
      o.model.seq,
      o.recompute,
      lethe::bench::median(plain),
      lethe::bench::median(ratios),
      o.rounds,
      *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()));
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("bench_trace", argc, argv, parse, run);
}
