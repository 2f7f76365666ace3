// Times forward and backward of a model folder (config.json, model.safetensors in hub names), or of
// a config.json with random weights:
//   lethe_step --model DIR --seq 2048 [--ids FILE] [--steps 3] [--threads 2] [--profile] ...
// Prints one JSON line; with --serve it answers as bench/peers/peer_step.py does, so that
// bench/peers/peer_table.py can set them side by side. The loss is the mean over the shifted ids,
// without an indexer loss unless asked for: the peers have none.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "bench/support/op_profile.h"
#include "bench/support/program.h"
#include "bench/support/resident.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/config/hub_config.h"
#include "lethe/config/validate.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/io/atomic_file.h"
#include "lethe/model/init.h"
#include "lethe/ops/implementation.h"
#include "lethe/train/model_folder.h"
#include "lethe/train/step.h"

namespace {

using lethe::bench::OpProfile;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model, config, ids, implementation = "auto";
  std::vector<std::string> overrides;  // op=word
  int64_t seq = 512, steps = 3, threads = 0, seed = 0;
  bool profile = false, indexer_loss = false, serve = false;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Times forward and backward of a DeepSeek-V4 model in Lethe; prints one JSON line.");
  auto* const source = app.add_option_group("model")->require_option(1);
  source->add_option("--model", o.model, "folder with config.json and model.safetensors");
  source->add_option(
      "--config", o.config, "config.json alone; the weights are Lethe's random ones");
  app.add_option("--seq", o.seq, "tokens of the one row")->check(CLI::PositiveNumber);
  app.add_option("--ids", o.ids, "text file of at least SEQ token ids; else random ones");
  app.add_option("--seed", o.seed, "of the random ids");
  app.add_option("--steps", o.steps, "timed steps; one more warms up")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--implementation", o.implementation, "auto, none or fused, for all operators");
  app.add_option("--override", o.overrides, "operator=auto|none|fused, may be repeated");
  app.add_flag("--indexer-loss", o.indexer_loss, "train the indexers too, over the attended slots");
  app.add_flag("--profile", o.profile, "also print the time by operator and autograd node");
  app.add_flag(
      "--serve", o.serve, "step whenever standard input says so (bench/peers/peer_step.py)");
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

std::vector<int64_t> token_ids(const Options& o, int64_t vocab_size) {
  std::vector<int64_t> ids;
  if (o.ids.empty()) {
    lethe::Random random(static_cast<uint64_t>(o.seed));
    for (int64_t i = 0; i < o.seq; ++i)
      ids.push_back(static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(vocab_size))));
    return ids;
  }
  std::ifstream file(o.ids);
  for (int64_t id = 0; std::ssize(ids) < o.seq && file >> id;) ids.push_back(id);
  LETHE_CHECK(DataError,
              std::ssize(ids) == o.seq,
              "--ids: '{}' must hold {} token ids, got {}; write more or lower --seq",
              o.ids,
              o.seq,
              ids.size());
  return ids;
}

// One document; every token predicts the next one.
lethe::MicroBatch one_row(const Options& o, const lethe::ModelConfig& config) {
  const std::vector<int64_t> ids = token_ids(o, config.vocab_size);
  std::vector<int64_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(lethe::kIgnoredLabel);
  const std::vector<int32_t> cu{0, static_cast<int32_t>(o.seq)};
  return lethe::make_micro_batch(ids, labels, cu, config.ratios);
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

std::unique_ptr<lethe::DeepseekV4> make_model(const Options& o) {
  if (!o.model.empty()) return lethe::read_model_folder(o.model, "model.safetensors", {});
  const lethe::HubConfig hub = lethe::parse_hub_config(lethe::read_text_file(o.config), o.config);
  lethe::validate(hub.model, o.config);
  auto model = std::make_unique<lethe::DeepseekV4>(hub.model, lethe::ParamPlacement());
  lethe::initialize(hub.model, model->params(), static_cast<uint64_t>(o.seed));
  return model;
}

class Stepper final {
 public:
  explicit Stepper(const Options& o)
      : options_(o), model_(make_model(o)), batch_(one_row(o, model_->config())) {
    lethe::ops::choose_implementations(choice_of(o));
    lethe::TrainConfig train;
    train.indexer_loss = o.indexer_loss ? lethe::IndexerLoss::Sparse : lethe::IndexerLoss::Off;
    train.indexer_loss_coeff = o.indexer_loss ? 1.0 : 0.0;
    lethe::choose_trained(*model_, train);
    factors_.main = 1.0 / static_cast<double>(o.seq - 1);
    factors_.indexer_loss = train.indexer_loss;
    factors_.indexer = 1.0 / static_cast<double>(o.seq);
  }

  /// Seconds of one forward and backward. Gradients are there at its end and freed after the clock.
  double step(OpProfile* profile) {
    lethe::RunTally tally = model_->make_tally();
    const auto start = Clock::now();
    if (profile != nullptr) profile->begin("forward");
    const lethe::ModelOutput out = model_->forward(batch_, factors_, tally);
    if (profile != nullptr) profile->begin("backward");
    out.total.backward();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    loss_ = out.main_sum.item<double>() * factors_.main;
    const lethe::ParamStore& params = model_->params();
    for (size_t i = 0; i < params.size(); ++i) params.value(i).mutable_grad().reset();
    return seconds;
  }

  [[nodiscard]] double loss() const { return loss_; }

  [[nodiscard]] int64_t parameters() const { return model_->params().total_elements(); }

 private:
  const Options& options_;
  std::unique_ptr<lethe::DeepseekV4> model_;
  lethe::MicroBatch batch_;
  lethe::LossFactors factors_;
  double loss_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

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
                              {"seq", o.seq},
                              {"threads", o.threads},
                              {"loss", stepper.loss()},
                              {"parameters", stepper.parameters()},
                              {"implementations", lethe::ops::implementations_that_ran()}};
  memory.finish(line);
  return line;
}

void serve(const Options& o, Stepper& stepper) {
  Memory memory;
  for (std::string line; std::getline(std::cin, line) && line == "step";) {
    const double seconds = stepper.step(nullptr);
    answer({{"seconds", seconds}, {"loss", stepper.loss()}});
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
  line["median_s"] = median(seconds);
  answer(line);
}

void run(const Options& o) {
  LETHE_CHECK(ConfigError, o.seq >= 2, "--seq: must be at least 2, got {}; raise it", o.seq);
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
