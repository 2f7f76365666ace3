// The least time one training step (forward and backward) can take on this machine, node by node:
//   roofline --config model.json --seq 4096 [--threads 2] [--step-seconds 1.5] [--out FILE.md]
// Every node needs max(FLOPs / multiply-add peak, bytes / triad bandwidth), both measured now; in a
// second column each plain matrix product runs at the rate that at::mm reaches for its shape.
// Bytes are compulsory: operands once, results once, as if no cache held them from node to node.
#include <iostream>

#include "bench/support/machine.h"
#include "bench/support/node_time.h"
#include "bench/support/program.h"
#include "bench/support/table.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>

#include "lethe/config/hub_config.h"
#include "lethe/config/validate.h"
#include "lethe/io/atomic_file.h"

namespace {

using lethe::bench::NodeTime;
using lethe::bench::NodeWork;
using lethe::bench::Peaks;

struct Options {
  std::string config, out;
  int64_t seq = 4096;
  int threads = 0;
  double step_seconds = 0;
  bool json = false;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("The least time one training step can take on this machine, node by node.");
  app.add_option("--config", o.config, "config.json of the model")->required();
  app.add_option("--seq", o.seq, "tokens of the one row")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "0 = as many as LibTorch chooses");
  app.add_option("--step-seconds", o.step_seconds, "measured time of a step, for its shares");
  app.add_option("--out", o.out, "file to which the table is appended as Markdown");
  app.add_flag("--json", o.json, "print one JSON line with the sums instead of the table");
  lethe::bench::parse_or_exit(app, argc, argv);
  return o;
}

std::vector<std::string> cells(const std::string& name, const NodeTime& line, const Peaks& peaks) {
  const bool by_flops = line.flops / peaks.fma_flops >= line.bytes / peaks.triad_bytes;
  return {name,
          fmt::format("{:.3f}", line.flops / 1e9),
          fmt::format("{:.1f}", line.bytes / 1e6),
          fmt::format("{:.2f}", 1e3 * line.ideal),
          name == "sum" ? ""
          : by_flops    ? "FMA"
                        : "memory",
          fmt::format("{:.2f}", 1e3 * line.with_mm)};
}

std::string summary(const Options& o, const Peaks& peaks, const NodeTime& sum) {
  std::string text = fmt::format(
      "{}; {} threads: {:.1f} GFLOP/s, triad {:.1f} GB/s. S = {}: {:.4f} GFLOP a token.\n",
      lethe::bench::machine_line(lethe::bench::this_machine()),
      peaks.threads,
      peaks.fma_flops / 1e9,
      peaks.triad_bytes / 1e9,
      o.seq,
      sum.flops / static_cast<double>(o.seq) / 1e9);
  if (o.step_seconds > 0)
    text += fmt::format(
        "Measured step {:.3f} s: {:.1f} % of the roofline, {:.1f} % with the products at the rate "
        "of at::mm.\n",
        o.step_seconds,
        100 * sum.ideal / o.step_seconds,
        100 * sum.with_mm / o.step_seconds);
  return text;
}

void run(const Options& o) {
  const lethe::HubConfig hub = lethe::parse_hub_config(lethe::read_text_file(o.config), o.config);
  lethe::validate(hub.model, o.config);
  const Peaks peaks = lethe::bench::measure_peaks(at::get_num_threads());
  lethe::bench::GemmRates rates;
  lethe::bench::Table table{
      .headings = {"node", "GFLOP", "MB", "ms at the peaks", "bound", "ms, products at at::mm"}};
  NodeTime sum;
  for (const NodeWork& node : lethe::bench::step_work(hub.model, o.seq)) {
    const NodeTime line = node_time(node, peaks, rates);
    table.rows.push_back(cells(node.name, line, peaks));
    sum += line;
  }
  table.rows.push_back(cells("sum", sum, peaks));
  const std::string text = summary(o, peaks, sum);
  if (o.json)
    std::cout << nlohmann::ordered_json{{"seq", o.seq},
                                        {"fma_flops", peaks.fma_flops},
                                        {"triad_bytes", peaks.triad_bytes},
                                        {"flops", sum.flops},
                                        {"bytes", sum.bytes},
                                        {"roofline_s", sum.ideal},
                                        {"roofline_mm_s", sum.with_mm}}
                     .dump()
              << "\n";
  else
    std::cout << text << "\n" << lethe::bench::plain_text(table);
  lethe::bench::append_to_file(o.out, text + "\n" + lethe::bench::markdown(table) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  return lethe::bench::run_program("roofline", argc, argv, parse, run);
}
