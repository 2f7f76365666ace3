// The full product of which tests/recompute/model_identity_test.cpp runs a cover: every way to
// recompute and many random ones, in every case, byte for byte against the run without recompute.
//   build-bench/bin/recompute_matrix [--random 60] [--cases 0,32]
#include <algorithm>
#include <iostream>
#include <utility>

#include "bench/support/program.h"
#include "recompute/model_run.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lethe/base/error.h"

namespace {

using lethe::test::ModelRun;
using lethe::test::RecomputeMode;
using lethe::test::RunCase;

struct Options {
  uint64_t random = 60;
  std::pair<size_t, size_t> cases{0, lethe::test::run_cases().size()};
  int64_t threads = 0;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Compares every way to recompute with none, byte for byte, in every case.");
  app.add_option("--random", o.random, "random plans for each case");
  app.add_option("--cases", o.cases, "the first case and the one behind the last: for a part")
      ->delimiter(',');
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

std::vector<RecomputeMode> modes_of(const RunCase& which, uint64_t num_random) {
  const lethe::PlanSubject subject = lethe::test::subject_of(which);
  std::vector<RecomputeMode> modes = lethe::test::recompute_modes(subject);
  for (uint64_t seed = 0; seed < num_random; ++seed)
    modes.push_back({fmt::format("seed {}", seed), lethe::test::random_plan(subject, seed)});
  return modes;
}

void run(const Options& o) {
  size_t runs = 0, values = 0, different = 0;
  const std::vector<RunCase> all = lethe::test::run_cases();
  for (size_t i = o.cases.first; i < std::min(o.cases.second, all.size()); ++i) {
    const RunCase& which = all[i];
    const ModelRun plain = lethe::test::train_three_steps(which, {});
    for (const RecomputeMode& mode : modes_of(which, o.random)) {
      const ModelRun now = lethe::test::train_three_steps(which, mode.plan);
      const std::string first = lethe::test::first_difference(plain.values, now.values);
      ++runs, values += now.values.size();
      if (first.empty()) continue;
      ++different;
      std::cout << mode.name << ", " << which.text() << ": " << first << " differs\n";
    }
    std::cerr << "recompute_matrix: " << which.text() << " done\n";
  }
  std::cout << runs << " runs of three steps, " << values << " values compared, " << different
            << " runs different\n";
  LETHE_CHECK(NumericError,
              different == 0,
              "every run must have the bits of the one without recompute, got {} that have not",
              different);
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("recompute_matrix", argc, argv, parse, run);
}
