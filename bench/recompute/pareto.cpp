// Time against memory of every way to recompute, on one model, in one interleaved run:
//   bench_pareto --config bench/peers/model.json --seq 2048,8192 --rounds 5 --threads 2 --out F.md
// A step is forward and backward over one document. Peak and saved bytes are counted by Lethe's
// allocator, above those of the model; swapped inputs are in a nameless file of --offload-folder.
// On the front stands what no other setting beats in both time and peak. Below a table: what a
// replay of everything costs beside the forward of the layers at the peaks of the same run.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench/recompute/replay_cost.h"
#include "bench/support/median.h"
#include "bench/support/model_step.h"
#include "bench/support/program.h"
#include "bench/support/recompute_settings.h"
#include "bench/support/table.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

namespace {

using lethe::bench::median;
using lethe::bench::ModelStep;
using lethe::bench::RecomputeSetting;

struct Options {
  lethe::bench::ModelStepOptions model;
  std::vector<int64_t> seqs{2048, 8192};
  std::vector<std::string> only;
  std::string out, offload_folder = std::filesystem::temp_directory_path();
  int64_t rounds = 5, threads = 0;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Time against memory of every way to recompute, in one interleaved run.");
  auto* const source = app.add_option_group("model")->require_option(1);
  source->add_option("--model", o.model.model, "folder with config.json and model.safetensors");
  source->add_option(
      "--config", o.model.config, "config.json alone; the weights are Lethe's random ones");
  app.add_option("--seq", o.seqs, "lengths of the row, one table each")->delimiter(',');
  app.add_option("--rounds", o.rounds, "timed steps of each setting; one more warms up")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--only", o.only, "names of settings; may be repeated");
  app.add_option("--offload-folder", o.offload_folder, "of a disk, for settings that swap")
      ->capture_default_str();
  app.add_flag("--indexer-loss", o.model.indexer_loss, "train the indexers too");
  app.add_option("--out", o.out, "file to which the tables are appended as Markdown");
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

// What the rounds of one setting gave.
struct Measured {
  const RecomputeSetting* setting;
  lethe::RecomputePlan plan;
  std::vector<double> seconds, forward, replay, of_none;  // of_none: against the same round's none
  int64_t peak = 0, saved = 0;
  double loss = 0;
};

std::vector<Measured> chosen(const Options& o, const lethe::ModelConfig& config) {
  std::vector<Measured> all;
  for (const RecomputeSetting& setting : lethe::bench::recompute_settings())
    if (o.only.empty() || setting.name == "none" ||
        std::find(o.only.begin(), o.only.end(), setting.name) != o.only.end())
      all.push_back({.setting = &setting,
                     .plan = lethe::bench::plan_of(setting.name, config, o.model.indexer_loss)});
  return all;
}

void take_round(ModelStep& step, std::vector<Measured>& all, bool warm_up) {
  for (Measured& m : all) {
    const int64_t base = lethe::bytes().live;
    lethe::reset_peak();
    const double seconds = step.step(nullptr, m.plan);
    m.peak = lethe::bytes().peak - base;
    m.saved = step.saved_bytes();
    m.loss = step.loss();
    if (warm_up) continue;
    m.seconds.push_back(seconds);
    m.forward.push_back(step.forward_seconds());
    m.replay.push_back(step.replay_seconds());
    m.of_none.push_back(seconds / all.front().seconds.back());
  }
}

bool on_front(const Measured& m, const std::vector<Measured>& all) {
  return std::none_of(all.begin(), all.end(), [&](const Measured& other) {
    const double mine = median(m.of_none), theirs = median(other.of_none);
    return (theirs < mine && other.peak <= m.peak) || (theirs <= mine && other.peak < m.peak);
  });
}

lethe::bench::Table table_of(const std::vector<Measured>& all) {
  lethe::bench::Table table{
      .headings = {
          "setting", "s", "of none", "replay s", "peak MB", "of none", "saved MB", "front"}};
  const auto mb = [](int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
  };
  for (const Measured& m : all)
    table.rows.push_back(
        {m.setting->name,
         fmt::format("{:.3f}", median(m.seconds)),
         fmt::format("{:.3f}", median(m.of_none)),
         fmt::format("{:.3f}", median(m.replay)),
         mb(m.peak),
         fmt::format("{:.3f}", static_cast<double>(m.peak) / static_cast<double>(all.front().peak)),
         mb(m.saved),
         on_front(m, all) ? "*" : ""});
  return table;
}

constexpr const char* kWholeLayers = "whole layers";

// Everything discarded, after the table and in rounds of its own.
std::string replay_text(ModelStep& step,
                        const std::vector<Measured>& all,
                        int64_t seq,
                        int64_t rounds) {
  const auto whole = std::find_if(
      all.begin(), all.end(), [](const Measured& m) { return m.setting->name == kWholeLayers; });
  return whole == all.end() ? "" : lethe::bench::replay_cost(step, whole->plan, seq, rounds);
}

void measure(const Options& o, int64_t seq) {
  lethe::bench::ModelStepOptions model = o.model;
  model.seq = seq;
  model.offload_folder = o.offload_folder;
  ModelStep step(model);
  std::vector<Measured> all = chosen(o, step.config());
  for (int64_t round = 0; round <= o.rounds; ++round) {
    take_round(step, all, round == 0);
    std::cerr << fmt::format("bench_pareto: S={} round {}/{}\n", seq, round, o.rounds);
  }
  for (const Measured& m : all)
    LETHE_CHECK(NumericError,
                m.loss == all.front().loss,
                "bench_pareto: the loss of '{}' must be {} as without recompute, got {}; a bug",
                m.setting->name,
                all.front().loss,
                m.loss);
  const lethe::bench::Table table = table_of(all);
  const std::string title =
      fmt::format("S={}, {} rounds, forward without recompute {:.3f} s, loss {} in all.",
                  seq,
                  o.rounds,
                  median(all.front().forward),
                  all.front().loss);
  const std::string replay = replay_text(step, all, seq, o.rounds);
  std::cout << title << "\n\n" << lethe::bench::plain_text(table) << "\n" << replay << std::flush;
  lethe::bench::append_to_file(o.out,
                               title + "\n\n" + lethe::bench::markdown(table) + "\n" + replay);
}

// What to give to lethe train for each setting.
std::string flags_text() {
  lethe::bench::Table table{.headings = {"setting", "flags"}, .left = 2};
  for (const RecomputeSetting& setting : lethe::bench::recompute_settings())
    table.rows.push_back({setting.name, setting.flags});
  return lethe::bench::markdown(table) + "\n";
}

void run(const Options& o) {
  lethe::bench::append_to_file(o.out, flags_text());
  for (const int64_t seq : o.seqs) measure(o, seq);
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("bench_pareto", argc, argv, parse, run);
}
