#include "lethe/train/trainer.h"

#include <chrono>
#include <filesystem>
#include <limits>
#include <ostream>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/base/log.h"
#include "lethe/config/data_blend.h"
#include "lethe/data/training_data.h"
#include "lethe/io/atomic_file.h"
#include "lethe/model/init.h"
#include "lethe/ops/implementation.h"
#include "lethe/plan/learning_rate.h"
#include "lethe/plan/loss_schedule.h"
#include "lethe/train/checkpointing.h"
#include "lethe/train/failure_dump.h"
#include "lethe/train/loss_factors.h"
#include "lethe/train/model_folder.h"
#include "lethe/train/progress.h"
#include "lethe/train/recompute_choice.h"
#include "lethe/train/run_files.h"
#include "lethe/train/runtime.h"
#include "lethe/train/step.h"
#include "lethe/train/stop_request.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

LearningRateSchedule rate_schedule(const TrainConfig& train) {
  LearningRateSchedule schedule{.peak = train.lr,
                                .minimum = train.min_lr,
                                .warmup_steps = train.lr_warmup_iters,
                                .total_steps = train.train_iters,
                                .style = train.lr_decay_style,
                                .decay_steps = train.lr_decay_iters,
                                .wsd_decay_steps = train.lr_wsd_decay_iters,
                                .wsd_style = train.lr_wsd_decay_style};
  check(schedule);
  return schedule;
}

LossSchedule loss_schedule(const TrainConfig& train, const LearningRateSchedule& rate) {
  LossSchedule schedule{
      .mtp_weight = train.mtp_loss_coeff,
      .mtp_weight_decayed = train.mtp_loss_coeff_decayed.value_or(train.mtp_loss_coeff),
      .first_decay_step = first_decay_step(rate)};
  check(schedule);
  return schedule;
}

DataSettings data_settings(const RunConfig& config) {
  const TrainConfig& t = config.train;
  DataSettings settings{.parts = {},
                        .valid_fraction = t.valid_fraction,
                        .seq_length = t.seq_length,
                        .sequences_per_batch = t.micro_batch_size,
                        .valid_batches = t.eval_iters,
                        .seed = static_cast<uint64_t>(t.seed),
                        .vocab_size = config.model.vocab_size,
                        .long_documents = t.long_documents};
  for (BlendPart& part : parse_data_blend(t.data))
    settings.parts.push_back({std::move(part.path), part.weight});
  return settings;
}

// For what must be tried whatever else fails: a failure is added to the text, never thrown.
template <class Action>
void attempt(std::string& troubles, const char* what, const Action& action) {
  try {
    action();
  } catch (const std::exception& trouble) {
    troubles += fmt::format("; {} failed: {}", what, trouble.what());
  }
}

template <class... Kinds>
bool is_any(const Error& error) {
  return (... || (dynamic_cast<const Kinds*>(&error) != nullptr));
}

ParamPlacement placement_of(const TrainConfig& train) {
  return {.float_type = train.bf16 ? ParamPlacement::Float::Bf16 : ParamPlacement::Float::Fp32};
}

}  // namespace

struct Trainer::Impl {
  TrainRequest request;
  const RunConfig& config = request.config;
  std::ostream& out;
  LearningRateSchedule rates = rate_schedule(config.train);
  LossSchedule losses = loss_schedule(config.train, rates);
  RecomputeChoice recompute = choose_recompute(config);
  std::optional<SwapTier> swap;  // where the plan swaps
  TrainingData data{data_settings(config)};
  DeepseekV4 model{config.model, placement_of(config.train)};
  std::unique_ptr<Optimizer> optimizer;
  std::optional<RecomputeTrace> trace;  // --recompute-stats
  RunState state;
  fs::path resumed_from;          // the checkpoint's folder; empty = a new run
  RunIdentity before;             // of the run that wrote it
  std::optional<int64_t> latest;  // what LATEST named when it was opened
  std::string tokenizer;          // content of tokenizer.json for the model folder; empty = bytes
  std::unique_ptr<RunFiles> files;
  std::unique_ptr<Checkpointing> checkpoints;
  Clock::time_point begin = Clock::now();

  Impl(TrainRequest wanted, std::ostream& stream) : request(std::move(wanted)), out(stream) {
    make_state();
  }

  void make_state();
  void open_files();
  [[nodiscard]] RunRecord::Start start_facts() const;
  void print_start(const RunRecord::Start& facts) const;
  StepReport train_step();
  void give_up(const std::string& error, std::span<const Batch> micro_batches);
  void stop_for(const Error& error);
  void note_operators();
  void after_step();
  void evaluate_now();
  void save(bool now);
  void save_at_the_end();
  std::string save_model();
  [[nodiscard]] std::string stop_reason(const StopRequest& stop, int64_t first_step) const;
  [[nodiscard]] double seconds_left(int64_t first_step) const;
  void show(const StepReport& report, int64_t first_step);
};

// Everything that can be refused is refused here, before a folder is touched.
void Trainer::Impl::make_state() {
  if (recompute.plan.swaps())
    swap = make_swap_tier(
        config.swap, config.model.num_layers, recompute.plan.checks != PlanChecks::Off);
  if (request.checkpoint)
    load_weights(*request.checkpoint, model);
  else
    initialize(config.model, model.params(), static_cast<uint64_t>(config.train.seed));
  choose_trained(model, config.train);
  optimizer = std::make_unique<Optimizer>(optimizer_groups(model.params(), config.train));
  if (request.checkpoint && !config.checkpoint.finetune) {
    state = load_state(*request.checkpoint, config.checkpoint, *optimizer);
    data.restore(state.data);
    resumed_from = request.checkpoint->folder();
    before = read_identity(*request.checkpoint);
    latest = request.checkpoint->latest();
  }
  if (!data.facts().tokenizer_json.empty()) tokenizer = read_text_file(data.facts().tokenizer_json);
  request.checkpoint.reset();  // its files may be removed while the run goes on
}

void Trainer::Impl::open_files() {
  std::optional<ResumePoint> resume;
  if (!resumed_from.empty()) resume = {state.record, state.step, latest};
  files = std::make_unique<RunFiles>(config, resume);
  if (config.recompute.stats) trace.emplace(files->folder(), recompute.subject, recompute.plan);
  save_chosen_plan(config, recompute);
  const RunRecord::Start facts = start_facts();
  const ProcessFacts process{.threads = at::get_num_threads(),
                             .kernels = chosen_kernels().backend,
                             .plan = facts.recompute ? facts.recompute->plan : ""};
  checkpoints = std::make_unique<Checkpointing>(
      config,
      RunIdentity{request.settings_text, request.hub_kept, request.settings, process},
      files->sessions(),
      out);
  if (resume)
    files->sessions().resumed(state.step, process, resumed_from, before.deciding, request.settings);
  else
    files->sessions().started(process);
  if (files->record().mark().num_bytes == 0) files->record().start(facts);
  print_start(facts);
  if (!resume) return;
  checkpoints->set_loaded(state.step);
  out << fmt::format("resume  {} at step {}\n", resumed_from.string(), state.step);
  if (before.process.threads != process.threads)
    log_warn(
        "the checkpoint was written with {} thread(s), this process has {}: results may differ in "
        "the last bits; --threads {} gives the same",
        before.process.threads,
        process.threads,
        before.process.threads);
  if (before.process.kernels != process.kernels)
    log_warn(
        "the checkpoint was written with the kernels '{}', this process has '{}': results may "
        "differ in the last bits; the same processor and settings give the same",
        before.process.kernels,
        process.kernels);
}

RunRecord::Start Trainer::Impl::start_facts() const {
  const DataFacts& facts = data.facts();
  RunRecord::Start start{
      .config = config,
      .text_unit = facts.unit,
      .settings = request.settings,
      .parameters = model.params().total_elements(),
      .parameter_bytes = bytes().live_of(ByteCategory::Parameters),
      .train_tokens = facts.train_tokens,
      .valid_tokens = facts.valid_tokens,
      .bigram_loss = facts.bigram_loss.value_or(std::numeric_limits<double>::quiet_NaN()),
      .threads = at::get_num_threads(),
      .kernels = chosen_kernels().backend,
      .recompute = recompute_facts(config, recompute)};
  for (const ParameterGroup& group : optimizer->groups())
    for (const at::Tensor& t : group.tensors) start.trained_parameters += t.numel();
  return start;
}

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
  out << fmt::format("data    {}: {} {}s for training, {} for validation; {} document(s)\n",
                     t.data,
                     count_text(static_cast<double>(facts.train_tokens)),
                     facts.text_unit,
                     count_text(static_cast<double>(facts.valid_tokens)),
                     data.facts().documents);
  out << fmt::format("run     {} steps of {} tokens, {} thread(s), into {}\n",
                     t.train_iters,
                     t.global_batch_size * t.seq_length,
                     facts.threads,
                     t.output);
  const std::string& rule = chosen_kernels().rule;
  out << fmt::format("kernels {}{}\n", facts.kernels, rule.empty() ? "" : " (" + rule + ")");
  out << plan_lines(config, recompute);
  if (swap) out << swap_line(config.swap);
}

StepReport Trainer::Impl::train_step() {
  const auto step_begin = Clock::now();
  state.data = data.position();
  std::vector<Batch> micro_batches;
  const int64_t parts = config.train.global_batch_size / config.train.micro_batch_size;
  for (int64_t i = 0; i < parts; ++i) micro_batches.push_back(data.next());
  const StepSchedule schedule{.learning_rate = learning_rate(rates, state.step),
                              .mtp_weight = mtp_weight(losses, state.step),
                              .recompute = &recompute,
                              .trace = trace ? &*trace : nullptr,
                              .swap = swap ? &*swap : nullptr};
  if (trace) trace->begin_step(state.step + 1);
  StepReport report;
  try {
    report = run_step(model, *optimizer, micro_batches, config.train, schedule);
  } catch (const NumericError& error) {
    give_up(error.what(), micro_batches);
  }
  int64_t tokens = 0;
  for (const Batch& batch : micro_batches) tokens += batch.tokens();
  report.step = ++state.step;
  state.consumed_tokens += tokens;
  state.data = data.position();
  if (trace)
    trace->end_step(report.recompute ? std::span<const RegionReport>(report.recompute->regions)
                                     : std::span<const RegionReport>());
  report.tokens_per_second = static_cast<double>(tokens) / seconds_since(step_begin);
  return report;
}

// The state is still that of the last good step: run_step changes nothing before it throws. Saved
// first; what else fails is told beside the error, never instead of it.
void Trainer::Impl::give_up(const std::string& error, std::span<const Batch> micro_batches) {
  const fs::path dump = files->folder() / fmt::format("not-finite-step-{:010}", state.step + 1);
  std::string troubles;
  attempt(troubles, "the save", [&] { save_at_the_end(); });
  attempt(troubles, "the dump", [&] {
    const StepCounts counts = count_labels(micro_batches, config.model.num_mtp);
    const LossFactors factors = loss_factors(config.train, counts, mtp_weight(losses, state.step));
    write_failure_dump(dump, error, micro_batches, model, factors);
  });
  optimizer->drop_gradients();
  attempt(troubles, "writing the model", [&] { save_model(); });
  attempt(troubles, "the record", [&] {
    files->record().end(state.step, "numeric-error", seconds_since(begin));
    files->stopped(state.step, "numeric-error", seconds_since(begin));
  });
  fail<NumericError>(
      "step {}: {}; the batch and statistics of parameters, gradients and layers are in {}, the "
      "state of step {} in {} and its model in {}; lower --lr or look at the batch, then go on "
      "with "
      "--load and --allow-setting-changes{}",
      state.step + 1,
      error,
      dump.string(),
      state.step,
      checkpoint_folder(config).string(),
      (files->folder() / "model").string(),
      troubles);
}

// Data, disk, a replay or a copy failed, before anything of the step was changed: what was trained
// since the last save must not be lost with it.
void Trainer::Impl::stop_for(const Error& error) {
  optimizer->drop_gradients();
  std::string troubles;
  attempt(troubles, "the save", [&] { save_at_the_end(); });
  attempt(troubles, "writing the model", [&] { save_model(); });
  attempt(troubles, "the session log", [&] {
    files->stopped(state.step, "error", seconds_since(begin));
  });
  if (!troubles.empty()) log_warn("after '{}'{}", error.what(), troubles);
}

double Trainer::Impl::seconds_left(int64_t first_step) const {
  const double spent = seconds_since(begin);
  const auto done = static_cast<double>(state.step - first_step);
  double left = spent / done * static_cast<double>(config.train.train_iters - state.step);
  if (config.train.max_seconds > 0)
    left = std::min(left, std::max(0.0, config.train.max_seconds - spent));
  return left;
}

void Trainer::Impl::show(const StepReport& report, int64_t first_step) {
  files->step(report);
  const bool edge = report.step == first_step + 1 || report.step == config.train.train_iters;
  if (edge || report.step % config.train.log_interval == 0)
    out << progress_line(report, config.train.train_iters, seconds_left(first_step)) << std::endl;
}

// A resume with the same kernels adds nothing: the record stays that of an uninterrupted run.
void Trainer::Impl::note_operators() {
  if (!resumed_from.empty() && before.process.kernels == chosen_kernels().backend) return;
  files->record().operators(state.step, ops::implementations_that_ran());
}

void Trainer::Impl::after_step() {
  checkpoints->poll();
  const int64_t interval = config.train.eval_interval;
  if (interval > 0 && state.step % interval == 0) evaluate_now();
  if (checkpoints->is_due(state.step)) save(false);
}

void Trainer::Impl::evaluate_now() {
  if (data.valid_batches().empty() || state.evaluated_step == state.step) return;
  state.valid_loss = evaluate(model, data.valid_batches());
  state.evaluated_step = state.step;
  files->eval(state.step, state.valid_loss);
  const std::optional<double> bigram = data.facts().bigram_loss;
  out << fmt::format("step {}  validation loss {:.4f} nats per {}{}",
                     state.step,
                     state.valid_loss,
                     data.facts().unit,
                     bigram ? fmt::format(" (a table of byte pairs reaches {:.2f})", *bigram) : "")
      << std::endl;
}

void Trainer::Impl::save(bool now) {
  state.record = files->record().sync();
  checkpoints->save(state, model, *optimizer, now);
}

// Whatever is under way is waited for; the state is on disk when this returns.
void Trainer::Impl::save_at_the_end() {
  checkpoints->finish();
  if (checkpoints->last_step() != state.step) save(true);
}

std::string Trainer::Impl::save_model() {
  return write_model_folder(model, files->folder() / "model", request.hub_kept, tokenizer);
}

std::string Trainer::Impl::stop_reason(const StopRequest& stop, int64_t first_step) const {
  const TrainConfig& t = config.train;
  if (stop.signal() != 0) return "signal";
  if (state.step >= t.train_iters) return "finished";
  if (t.max_seconds > 0 && seconds_since(begin) >= t.max_seconds) return "max-seconds";
  if (t.exit_interval > 0 && state.step > first_step && state.step % t.exit_interval == 0)
    return "exit-interval";
  return "";
}

Trainer::Trainer(TrainRequest request, std::ostream& out)
    : impl_(std::make_unique<Impl>(std::move(request), out)) {}

Trainer::~Trainer() = default;

TrainResult Trainer::run() {
  Impl& run = *impl_;
  const StopRequest stop;
  run.open_files();
  run.begin = Clock::now();
  const int64_t first_step = run.state.step;
  std::string reason;
  try {
    while ((reason = run.stop_reason(stop, first_step)).empty()) {
      const StepReport report = run.train_step();
      if (report.step == first_step + 1) run.note_operators();
      run.show(report, first_step);
      run.after_step();
    }
    // Saved first: whoever stopped us may not wait for an evaluation.
    run.save_at_the_end();
  } catch (const Error& error) {
    if (is_any<DataError, RecomputeError, SwapError, OutOfArena>(error)) run.stop_for(error);
    throw;
  }
  if (reason != "signal") run.evaluate_now();
  TrainResult result{.steps = run.state.step,
                     .valid_loss = run.state.evaluated_step == run.state.step
                                       ? run.state.valid_loss
                                       : std::numeric_limits<double>::quiet_NaN(),
                     .model_folder = run.save_model(),
                     .record_file = (run.files->folder() / "run.jsonl").string(),
                     .reason = reason,
                     .signal = reason == "signal" ? stop.signal() : 0};
  run.files->record().end(run.state.step, reason, seconds_since(run.begin));
  run.files->stopped(run.state.step, reason, seconds_since(run.begin));
  return result;
}

}  // namespace lethe
