// Times forward and backward of a model folder (config.json, model.safetensors in hub names), or of
// a config.json with random weights:
//   lethe_step --model DIR --seq 2048 [--ids FILE] [--steps 3] [--threads 2] [--profile] ...
// Prints one JSON line; with --serve it answers as bench/peers/peer_step.py does, so that
// bench/peers/peer_table.py can set them side by side. The loss is the mean over the shifted ids,
// without an indexer loss unless asked for: the peers have none.
#include <algorithm>
#include <iostream>
#include <memory>

#include "bench/support/median.h"
#include "bench/support/model_step.h"
#include "bench/support/program.h"
#include "bench/support/recompute_settings.h"
#include "bench/support/resident.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"

namespace {

using lethe::bench::OpProfile;

struct Options {
  lethe::bench::ModelStepOptions model;
  std::string implementation = "auto", recompute = "none";
  std::vector<std::string> overrides;  // op=word
  int64_t steps = 3, threads = 0;
  bool profile = false, serve = false;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Times forward and backward of a DeepSeek-V4 model in Lethe; prints one JSON line.");
  auto* const source = app.add_option_group("model")->require_option(1);
  source->add_option("--model", o.model.model, "folder with config.json and model.safetensors");
  source->add_option(
      "--config", o.model.config, "config.json alone; the weights are Lethe's random ones");
  app.add_option("--seq", o.model.seq, "tokens of the one row")->check(CLI::PositiveNumber);
  app.add_option("--ids", o.model.ids, "text file of at least SEQ token ids; else random ones");
  app.add_option("--seed", o.model.seed, "of random ids and weights");
  app.add_option("--steps", o.steps, "timed steps; one more warms up")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--implementation", o.implementation, "auto, none or fused, for all operators");
  app.add_option("--override", o.overrides, "operator=auto|none|fused, may be repeated");
  app.add_option("--recompute", o.recompute, "a setting of bench_pareto, for example csa+mhc");
  app.add_flag(
      "--indexer-loss", o.model.indexer_loss, "train the indexers too, over the attended slots");
  app.add_flag("--profile", o.profile, "also print the time by operator and autograd node");
  app.add_flag(
      "--serve", o.serve, "step whenever standard input says so (bench/peers/peer_step.py)");
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

lethe::ops::ImplementationChoice choice_of(const Options& o) {
  lethe::ops::ImplementationChoice choice{.all =
                                              lethe::ops::parse_implementation(o.implementation)};
  for (const std::string& text : o.overrides) {
    const size_t equals = text.find('=');
    LETHE_CHECK(ConfigError,
                equals != std::string::npos,
                "--override: must be operator=implementation, got '{}'; for example rms_norm=none",
                text);
    choice.overrides[text.substr(0, equals)] =
        lethe::ops::parse_implementation(text.substr(equals + 1));
  }
  return choice;
}

// A step under the options' implementations and plan.
class Stepper final {
 public:
  explicit Stepper(const Options& o)
      : step_(o.model),
        plan_(lethe::bench::plan_of(o.recompute, step_.config(), o.model.indexer_loss)) {
    lethe::ops::choose_implementations(choice_of(o));
  }

  double step(OpProfile* profile) { return step_.step(profile, plan_); }

  [[nodiscard]] const lethe::bench::ModelStep& model() const { return step_; }

 private:
  lethe::bench::ModelStep step_;
  lethe::RecomputePlan plan_;
};

void print_profile(Stepper& stepper, const Options& o) {
  OpProfile profile;
  double total = 0;
  for (int64_t i = 0; i < o.steps; ++i) total += stepper.step(&profile);
  std::cout << lethe::bench::profile_text(profile.times(), o.steps, total) << std::flush;
}

// Bytes above those of the loaded model, from construction on.
class Memory final {
 public:
  Memory() : base_(lethe::bench::resident_bytes()), counted_base_(lethe::bytes().live) {
    lethe::reset_peak();
  }

  /// Stops measuring.
  void finish(nlohmann::ordered_json& line) {
    line["peak_bytes_above_model"] = watch_.finish() - base_;
    line["allocator_peak_bytes_above_model"] = lethe::bytes().peak - counted_base_;
  }

 private:
  int64_t base_, counted_base_;
  lethe::bench::ResidentWatch watch_;
};

void answer(const nlohmann::ordered_json& line) {
  std::cout << line.dump() << "\n" << std::flush;
}

nlohmann::ordered_json facts(const Options& o, const Stepper& stepper, Memory& memory) {
  nlohmann::ordered_json line{{"peer", "lethe"},
                              {"seq", o.model.seq},
                              {"threads", o.threads},
                              {"recompute", o.recompute},
                              {"loss", stepper.model().loss()},
                              {"parameters", stepper.model().parameters()},
                              {"implementations", lethe::ops::implementations_that_ran()}};
  memory.finish(line);
  return line;
}

void serve(const Options& o, Stepper& stepper) {
  Memory memory;
  for (std::string line; std::getline(std::cin, line) && line == "step";) {
    const double seconds = stepper.step(nullptr);
    answer({{"seconds", seconds}, {"loss", stepper.model().loss()}});
  }
  answer(facts(o, stepper, memory));
}

void run_steps(const Options& o, Stepper& stepper) {
  Memory memory;
  const double first = stepper.step(nullptr);
  std::vector<double> seconds;
  for (int64_t i = 0; i < o.steps; ++i) seconds.push_back(stepper.step(nullptr));
  nlohmann::ordered_json line = facts(o, stepper, memory);
  if (o.profile) print_profile(stepper, o);
  line["first_s"] = first;
  line["seconds"] = seconds;
  line["median_s"] = lethe::bench::median(seconds);
  answer(line);
}

void run(const Options& o) {
  Stepper stepper(o);
  if (o.serve)
    serve(o, stepper);
  else
    run_steps(o, stepper);
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("lethe_step", argc, argv, parse, run);
}
