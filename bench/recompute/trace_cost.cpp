// What looking costs: steps with regions' statistics, the trace and the census on, against steps
// without, alternating (issue figure: under 1 %).
//   build-bench/bin/bench_trace --config bench/peers/model.json [--seq 1024] [--rounds 11]
#include <chrono>
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

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One step with everything on, each its own trace: seconds of the step, and of the writing after
// it.
std::pair<double, double> watched_step(ModelStep& step,
                                       const lethe::RecomputePlan& plan,
                                       const std::string& out) {
  lethe::RecomputeTrace trace(
      out, lethe::PlanSubject::of(step.config()), plan, {.first_step = 1, .num_steps = 1});
  trace.begin_step(1);
  const double seconds = step.step(nullptr, plan, &trace);
  const auto start = std::chrono::steady_clock::now();
  trace.end_step(step.regions());
  return {seconds, seconds_since(start)};
}

void run(const Options& o) {
  ModelStep step(o.model);
  const lethe::RecomputePlan plan = lethe::bench::plan_of(o.recompute, step.config(), false);
  fs::create_directories(o.out);
  std::vector<double> ratios, plain, written;
  for (int64_t round = 0; round <= o.rounds; ++round) {
    // Each is the first of a pair in every other round: what one leaves behind meets both.
    double off = round % 2 == 0 ? step.step(nullptr, plan) : 0;
    const auto [on, writing] = watched_step(step, plan, o.out);
    if (round % 2 == 1) off = step.step(nullptr, plan);
    if (round == 0) continue;
    plain.push_back(off);
    ratios.push_back(on / off);
    written.push_back(writing);
  }
  std::cout << fmt::format(
      "S={}, {}: {:.3f} s a step, {:.4f} of it with everything on (median of {} pairs, "
      "half of them {:.4f} to {:.4f}), {:.1f} ms more to write the step's files\n",
      o.model.seq,
      o.recompute,
      lethe::bench::median(plain),
      lethe::bench::median(ratios),
      o.rounds,
      lethe::bench::quartile(ratios, 1),
      lethe::bench::quartile(ratios, 3),
      lethe::bench::median(written) * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("bench_trace", argc, argv, parse, run);
}
