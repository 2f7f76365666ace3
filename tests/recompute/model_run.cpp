#include "recompute/model_run.h"

#include <algorithm>
#include <cstring>

#include "support/tiny_model.h"
#include <fmt/format.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/offload/cpu_swap_backend.h"
#include "lethe/ops/router_bias.h"
#include "lethe/optim/group_parameters.h"
#include "lethe/optim/optimizer.h"

namespace lethe::test {
namespace {

std::string bytes_of(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  const at::Tensor packed = t.detach().contiguous();
  return {static_cast<const char*>(packed.const_data_ptr()), packed.nbytes()};
}

std::string bytes_of(double value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::vector<int64_t> lengths_of(const RunCase& which) {
  return which.packed ? std::vector<int64_t>{19, 5, 24} : std::vector<int64_t>{48};
}

int64_t activation_bytes() {
  const ByteReport now = bytes();
  return now.live - now.live_of(ByteCategory::Parameters) - now.live_of(ByteCategory::Optimizer) -
         now.live_of(ByteCategory::Gradients);
}

void append(std::vector<RegionReport>& all, const std::vector<RegionReport>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// One training of a model under a plan.
class Training {
 public:
  Training(const RunCase& which, const RecomputePlan& plan)
      : which_(which),
        plan_(plan),
        model_(lively_model(
            model_of(which),
            {.float_type = which.bf16 ? ParamPlacement::Float::Bf16 : ParamPlacement::Float::Fp32},
            /*seed=*/7)),
        optimizer_(group_parameters(model_->params(), {.kind = OptimizerKind::AdamW})) {}

  ModelRun run(int num_steps, const AfterStep& after_step) {
    for (int step = 0; step < num_steps; ++step) {
      take_step(step);
      if (after_step) after_step(step, run_);
    }
    for (size_t i = 0; i < model_->params().size(); ++i)
      add("after." + model_->params().row(i).name, bytes_of(model_->params().value(i)));
    return std::move(run_);
  }

 private:
  void add(const std::string& name, std::string bytes) {
    run_.values.emplace_back(name, std::move(bytes));
  }

  void take_step(int step) {
    const std::string at = fmt::format("step{}.", step);
    RunTally tally = model_->make_tally();
    optimizer_.drop_gradients();
    run_.forgotten.clear();
    run_.replayed.clear();
    run_.swapped = {};
    for (int m = 0; m < which_.micro_batches; ++m)
      run_micro_batch(fmt::format("{}mb{}.", at, m), step * which_.micro_batches + m, m, tally);
    for (size_t i = 0; i < tally.indexer_kl.size(); ++i) {
      add(fmt::format("{}kl.{}", at, i), bytes_of(tally.indexer_kl[i]));
      add(fmt::format("{}counts.{}", at, i), bytes_of(tally.expert_counts[i]));
    }
    for (size_t i = 0; i < model_->params().size(); ++i)
      add(at + "grad." + model_->params().row(i).name, bytes_of(model_->params().value(i).grad()));
    optimizer_.step(1e-3);
    const auto biases = model_->router_biases();
    for (size_t i = 0; i < biases.size(); ++i)
      if (biases[i].defined() && tally.expert_counts[i].defined())
        ops::update_router_bias(biases[i], tally.expert_counts[i], 1e-2);
    add(at + "random", bytes_of(at::detail::getDefaultCPUGenerator().get_state()));
    run_.host_bytes = backend_->report().host_bytes;
  }

  void run_micro_batch(const std::string& at, int seed, int index, RunTally& tally) {
    const ModelConfig& config = model_->config();
    const MicroBatch batch =
        random_batch(config, lengths_of(which_), static_cast<uint64_t>(seed) + 100);
    LossFactors factors = all_losses(config);
    factors.balance = 0.1;
    std::vector<std::pair<std::string, std::string>> arrived;
    const Observer watch = [&](const std::string& name, const at::Tensor& value) {
      if (!name.ends_with(".out") || name.ends_with("attn.out") || name.ends_with("ffn.out"))
        return;
      add(at + name, bytes_of(value));
      value.register_hook([&arrived, name](const at::Tensor& gradient) {
        arrived.emplace_back(name, bytes_of(gradient));
      });
    };
    Tape tape({.checked = plan_.checks != PlanChecks::Off});
    LayerInputSwap swap(
        fmt::format("mb{}", index), {.num_layers = config.num_layers, .checked = true}, backend_);
    const int64_t before = activation_bytes();
    const ModelOutput out =
        model_->forward(batch,
                        factors,
                        tally,
                        watch,
                        {.tape = &tape, .plan = &plan_, .micro_batch = index, .swap = &swap});
    append(run_.forgotten, tape.report());
    if (run_.saved_bytes == 0) run_.saved_bytes = activation_bytes() - before;
    add(at + "total", bytes_of(out.total));
    add(at + "main", bytes_of(out.main_sum));
    for (const at::Tensor& sum : out.mtp_sums) add(at + "mtp", bytes_of(sum));
    add(at + "balance", bytes_of(out.balance));
    out.total.backward();
    for (auto& [name, gradient] : arrived) add(at + "grad." + name, std::move(gradient));
    append(run_.replayed, tape.report());
    run_.swapped += swap.stats();
  }

  RunCase which_;
  const RecomputePlan& plan_;
  std::unique_ptr<DeepseekV4> model_;
  Optimizer optimizer_;
  std::shared_ptr<SwapBackend> backend_ = make_cpu_swap_backend(16 << 20);
  ModelRun run_;
};

}  // namespace

std::string RunCase::text() const {
  return fmt::format("{} threads={} {} mtp={} micro_batches={}",
                     bf16 ? "bf16" : "fp32",
                     threads,
                     packed ? "packed" : "plain",
                     mtp ? "on" : "off",
                     micro_batches);
}

std::vector<RunCase> run_cases() {
  std::vector<RunCase> cases;
  for (unsigned bits = 0; bits < 32; ++bits)
    cases.push_back({.bf16 = (bits & 1) != 0,
                     .threads = (bits & 2) != 0 ? 2 : 1,
                     .packed = (bits & 4) != 0,
                     .mtp = (bits & 8) == 0,
                     .micro_batches = (bits & 16) != 0 ? 3 : 1});
  return cases;
}

ModelConfig model_of(const RunCase& which) {
  ModelConfig config = tiny_a();
  if (which.mtp) return config;
  config.num_mtp = 0;
  config.ratios.resize(static_cast<size_t>(config.num_layers));
  return config;
}

PlanSubject subject_of(const RunCase& which) {
  return PlanSubject::of(model_of(which));
}

ModelRun train_steps(const RunCase& which,
                     const RecomputePlan& plan,
                     int num_steps,
                     const AfterStep& after_step) {
  install_byte_accounting();
  at::set_num_threads(which.threads);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1);
  return Training(which, plan).run(num_steps, after_step);
}

ModelRun train_three_steps(const RunCase& which, const RecomputePlan& plan) {
  return train_steps(which, plan, 3);
}

MicroBatchShape shape_of(const RunCase& which) {
  return {.documents = Documents::from_lengths(lengths_of(which)), .balanced = true};
}

std::string first_difference(const Values& expected, const Values& actual) {
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    if (expected[i].first != actual[i].first)
      return fmt::format("{} instead of {}", actual[i].first, expected[i].first);
    const std::string &a = expected[i].second, &b = actual[i].second;
    if (a.size() != b.size() || std::memcmp(a.data(), b.data(), a.size()) != 0)
      return expected[i].first;
  }
  return expected.size() == actual.size()
             ? ""
             : fmt::format("{} values instead of {}", actual.size(), expected.size());
}

}  // namespace lethe::test
