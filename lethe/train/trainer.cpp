#include "lethe/train/trainer.h"

#include <chrono>
#include <filesystem>
#include <limits>
#include <ostream>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/data/batches.h"
#include "lethe/data/bigram.h"
#include "lethe/data/byte_text.h"
#include "lethe/data/split.h"
#include "lethe/io/atomic_file.h"
#include "lethe/model/deepseek_v4.h"
#include "lethe/model/init.h"
#include "lethe/plan/learning_rate.h"
#include "lethe/train/model_folder.h"
#include "lethe/train/progress.h"
#include "lethe/train/step.h"
#include "lethe/train/stop_request.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Everything is checked before the folder is touched.
void claim_output(const TrainConfig& train) {
  const std::filesystem::path record = std::filesystem::path(train.output) / "run.jsonl";
  LETHE_CHECK(ConfigError,
              train.overwrite || !std::filesystem::exists(record),
              "--output: '{}' must not hold a run yet, got one ({}); choose another folder, or "
              "replace it with --overwrite",
              train.output,
              record.string());
  ensure_writable_folder(train.output);
}

LearningRateSchedule schedule_of(const TrainConfig& train) {
  LearningRateSchedule schedule{.peak = train.lr,
                                .minimum = train.min_lr,
                                .warmup_steps = train.lr_warmup_iters,
                                .total_steps = train.train_iters};
  check(schedule);
  return schedule;
}

void check_vocabulary(const ModelConfig& model) {
  LETHE_CHECK(ConfigError,
              model.vocab_size >= kByteVocab,
              "--vocab-size: byte-level tokens need at least {} rows, got {}; use --vocab-size {}",
              kByteVocab,
              model.vocab_size,
              kByteVocab);
}

}  // namespace

struct Trainer::Impl {
  RunConfig config;
  std::string hub_kept;
  std::ostream& out;
  LearningRateSchedule schedule;
  ByteText text;
  TextSplit split;
  double bigram_loss;
  ShuffledBatches batches;
  std::vector<Batch> valid_batches;
  DeepseekV4 model;
  AdamW optimizer;
  std::unique_ptr<RunRecord> record;
  std::filesystem::path folder;
  Clock::time_point begin = Clock::now();

  Impl(const RunConfig& run, std::string kept, std::ostream& stream)
      : config((check_vocabulary(run.model), run)),
        hub_kept(std::move(kept)),
        out(stream),
        schedule(schedule_of(run.train)),
        text(load_text(run.train.data)),
        split(split_text(text, run.train.valid_fraction, run.train.seq_length)),
        bigram_loss(bigram_entropy(text, split.train)),
        batches(Sequences(text, split.train, run.train.seq_length),
                run.train.micro_batch_size,
                static_cast<uint64_t>(run.train.seed)),
        valid_batches(make_valid_batches()),
        model((claim_output(run.train), run.model), ParamPlacement{}),
        optimizer(make_optimizer()),
        folder(run.train.output) {}

  std::vector<Batch> make_valid_batches() const {
    if (split.valid.empty()) return {};
    const TrainConfig& t = config.train;
    return fixed_batches(Sequences(text, split.valid, t.seq_length),
                         t.micro_batch_size,
                         t.micro_batch_size * t.eval_iters);
  }

  AdamW make_optimizer() {
    initialize(config.model, model.params(), static_cast<uint64_t>(config.train.seed));
    choose_trained(model, config.train);
    return AdamW(optimizer_groups(model.params(), config.train));
  }

  void start_record();
  void print_start(const RunRecord::Start& facts) const;
  std::vector<Batch> global_batch(int64_t step);
  StepReport train_step(int64_t step);
  void show(const StepReport& report);
  double evaluate_now(int64_t step);

  std::string save_model() { return write_model_folder(model, folder / "model", hub_kept); }

  std::string stop_reason(int64_t step, const StopRequest& stop) const;
  [[nodiscard]] double seconds_left(int64_t step) const;
};

void Trainer::Impl::print_start(const RunRecord::Start& facts) const {
  const ModelConfig& m = config.model;
  const TrainConfig& t = config.train;
  out << fmt::format(
      "model   {} parameters ({} trained), {} layers, hidden {}, {} experts, {} MTP block(s)\n",
      count_text(static_cast<double>(facts.parameters)),
      count_text(static_cast<double>(facts.trained_parameters)),
      m.num_layers,
      m.hidden,
      m.num_experts,
      m.num_mtp);
  out << fmt::format("text    {}: {} for training, {} for validation; {} document(s)\n",
                     t.data,
                     bytes_text(facts.train_tokens),
                     bytes_text(facts.valid_tokens),
                     text.documents.size());
  out << fmt::format("run     {} steps of {} tokens, {} thread(s), into {}\n",
                     t.train_iters,
                     t.global_batch_size * t.seq_length,
                     facts.threads,
                     t.output);
}

void Trainer::Impl::start_record() {
  for (const char* name :
       {"model", "run.jsonl", "report.html"})  // of a run that --overwrite replaces
    std::filesystem::remove_all(folder / name);
  record = std::make_unique<RunRecord>((folder / "run.jsonl").string());
  RunRecord::Start facts{.config = config,
                         .parameters = model.params().total_elements(),
                         .parameter_bytes = bytes().live_of(ByteCategory::Parameters),
                         .train_tokens = total_size(split.train),
                         .valid_tokens = total_size(split.valid),
                         .bigram_loss = bigram_loss,
                         .threads = at::get_num_threads()};
  for (const ParameterGroup& group : optimizer.groups())
    for (const at::Tensor& t : group.tensors) facts.trained_parameters += t.numel();
  record->start(facts);
  print_start(facts);
}

std::vector<Batch> Trainer::Impl::global_batch(int64_t step) {
  const int64_t parts = config.train.global_batch_size / config.train.micro_batch_size;
  std::vector<Batch> out_batches;
  for (int64_t i = 0; i < parts; ++i) out_batches.push_back(batches.at(step * parts + i));
  return out_batches;
}

StepReport Trainer::Impl::train_step(int64_t step) {
  const auto step_begin = Clock::now();
  const std::vector<Batch> micro_batches = global_batch(step);
  StepReport report =
      run_step(model, optimizer, micro_batches, config.train, learning_rate(schedule, step));
  int64_t tokens = 0;
  for (const Batch& batch : micro_batches) tokens += batch.tokens();
  report.step = step + 1;
  report.tokens_per_second = static_cast<double>(tokens) / seconds_since(step_begin);
  return report;
}

double Trainer::Impl::seconds_left(int64_t step) const {
  const double spent = seconds_since(begin);
  double left =
      spent / static_cast<double>(step) * static_cast<double>(config.train.train_iters - step);
  if (config.train.max_seconds > 0)
    left = std::min(left, std::max(0.0, config.train.max_seconds - spent));
  return left;
}

void Trainer::Impl::show(const StepReport& report) {
  record->step(report);
  const bool last = report.step == config.train.train_iters;
  if (report.step == 1 || last || report.step % config.train.log_interval == 0)
    out << progress_line(report, config.train.train_iters, seconds_left(report.step)) << std::endl;
}

double Trainer::Impl::evaluate_now(int64_t step) {
  if (valid_batches.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double loss = evaluate(model, valid_batches);
  record->eval(step, loss);
  out << fmt::format(
             "step {}  validation loss {:.4f} nats per byte (a table of byte pairs reaches {:.2f})",
             step,
             loss,
             bigram_loss)
      << std::endl;
  return loss;
}

std::string Trainer::Impl::stop_reason(int64_t step, const StopRequest& stop) const {
  if (stop.signal() != 0) return "signal";
  if (config.train.max_seconds > 0 && seconds_since(begin) >= config.train.max_seconds)
    return "max-seconds";
  return step >= config.train.train_iters ? "finished" : "";
}

Trainer::Trainer(const RunConfig& config, std::string hub_kept, std::ostream& out)
    : impl_(std::make_unique<Impl>(config, std::move(hub_kept), out)) {}

Trainer::~Trainer() = default;

TrainResult Trainer::run() {
  Impl& run = *impl_;
  const StopRequest stop;
  run.begin = Clock::now();
  run.start_record();
  TrainResult result{.bigram_loss = run.bigram_loss,
                     .record_file = (run.folder / "run.jsonl").string()};
  std::string reason;
  int64_t evaluated = -1;
  try {
    while ((reason = run.stop_reason(result.steps, stop)).empty()) {
      run.show(run.train_step(result.steps));
      ++result.steps;
      const int64_t interval = run.config.train.eval_interval;
      if (interval > 0 && result.steps % interval == 0) {
        result.valid_loss = run.evaluate_now(result.steps);
        evaluated = result.steps;
      }
    }
  } catch (const NumericError& error) {
    result.model_folder = run.save_model();
    run.record->end(result.steps, "numeric-error", seconds_since(run.begin));
    fail<NumericError>("step {}: {}; the model of step {} is in {}",
                       result.steps + 1,
                       error.what(),
                       result.steps,
                       result.model_folder);
  }
  if (evaluated != result.steps) result.valid_loss = run.evaluate_now(result.steps);
  result.model_folder = run.save_model();
  result.signal = stop.signal();
  run.record->end(result.steps, reason, seconds_since(run.begin));
  return result;
}

}  // namespace lethe
