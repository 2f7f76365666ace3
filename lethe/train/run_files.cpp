#include "lethe/train/run_files.h"

#include <chrono>
#include <vector>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checkpoint_folder.h"

namespace lethe {

namespace fs = std::filesystem;

namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --load helps only where there is something to load.
std::string way_on(const fs::path& save) {
  return fs::exists(save / "LATEST") ? fmt::format("go on with it by --load {}, ", save.string())
                                     : "";
}

void expect_no_run(const TrainConfig& train, const fs::path& save) {
  const fs::path record = fs::path(train.output) / "run.jsonl";
  LETHE_CHECK(ConfigError,
              !fs::exists(record),
              "--output: '{}' must not hold a run yet, got one ({}); {}"
              "choose another folder, or replace it with --overwrite",
              train.output,
              record.string(),
              way_on(save));
  LETHE_CHECK(ConfigError,
              steps_in(save).empty(),
              "--save: '{}' must not hold checkpoints of another run, got {}; {}"
              "choose another folder, or replace them with --overwrite",
              save.string(),
              step_name(steps_in(save).back()),
              way_on(save));
}

void remove_run(const fs::path& folder, const fs::path& save) {
  for (const char* name : {"model",
                           "run.jsonl",
                           "sessions.jsonl",
                           "recompute.jsonl",
                           "census.jsonl",
                           "recompute-trace.json",
                           "report.html",
                           "tensorboard"})
    fs::remove_all(folder / name);
  std::vector<fs::path> dumps;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("not-finite-step-"))
      dumps.push_back(entry.path());
  for (const fs::path& dump : dumps) fs::remove_all(dump);
  fs::remove(save / "LATEST");  // first: what is half removed must not be found
  for (const int64_t step : steps_in(save)) fs::remove_all(save / step_name(step));
}

bool same_folder(const fs::path& a, const fs::path& b) {
  return fs::weakly_canonical(a) == fs::weakly_canonical(b);
}

std::vector<EventScalar> scalars_of(const StepReport& r) {
  std::vector<EventScalar> out{{"loss/main", static_cast<float>(r.loss)}};
  const auto add = [&out](const char* tag, double value) {
    out.push_back({tag, static_cast<float>(value)});
  };
  if (r.loss_mtp) add("loss/mtp", *r.loss_mtp);
  if (r.loss_kl) add("loss/indexer_kl", *r.loss_kl);
  if (r.loss_balance) add("loss/balance", *r.loss_balance);
  add("optimizer/grad_norm", r.grad_norm);
  add("optimizer/learning_rate", r.learning_rate);
  add("speed/tokens_per_second", r.tokens_per_second);
  add("memory/peak_bytes", static_cast<double>(r.peak_bytes));
  for (size_t c = 0; c < kNumByteCategories; ++c)
    out.push_back({fmt::format("memory/peak/{}", name_of(static_cast<ByteCategory>(c))),
                   static_cast<float>(r.at_peak[c])});
  return out;
}

}  // namespace

fs::path checkpoint_folder(const RunConfig& config) {
  return config.checkpoint.save.empty() ? fs::path(config.train.output) / "checkpoints"
                                        : fs::path(config.checkpoint.save);
}

RunFiles::RunFiles(const RunConfig& config, const std::optional<ResumePoint>& resume)
    : folder_(config.train.output) {
  const fs::path save = checkpoint_folder(config), load = config.checkpoint.load.value_or("");
  const bool replaces = config.train.overwrite && !resume;
  LETHE_CHECK(ConfigError,
              !replaces || load.empty() || !same_folder(save, load),
              "--overwrite: must not remove '{}', which --load reads, got both; choose another "
              "--output",
              load.string());
  const auto check_free = [&] {
    if (!config.train.overwrite && !resume) expect_no_run(config.train, save);
  };
  check_free();
  const bool goes_on_there = resume && same_folder(save, load);
  LETHE_CHECK(ConfigError,
              !resume || goes_on_there || steps_in(save).empty(),
              "--save: '{}' must be empty, or the folder that --load names, got checkpoints of "
              "another run; choose another folder",
              save.string());
  ensure_writable_folder(folder_);
  ensure_writable_folder(save);
  lock_.emplace(folder_);
  if (!same_folder(save, folder_)) save_lock_.emplace(save);
  check_free();  // another process may have been faster
  LETHE_CHECK(DataError,
              !goes_on_there || latest_step(load) == resume->latest,
              "--load: '{}' must not change while it is read, got a newer checkpoint from another "
              "process; start again",
              load.string());
  if (goes_on_there && resume->latest != resume->step) set_latest(save, resume->step);
  if (replaces) remove_run(folder_, save);
  const fs::path record = folder_ / "run.jsonl";
  record_ = resume && fs::exists(record)
                ? std::make_unique<RunRecord>(record.string(), resume->record)
                : std::make_unique<RunRecord>(record.string());
  sessions_ = std::make_unique<SessionLog>(folder_);
  if (config.train.tensorboard)
    events_.emplace(folder_ / "tensorboard", wall_time, resume ? resume->step + 1 : 1);
}

void RunFiles::stopped(int64_t step, const std::string& reason, double seconds) {
  sessions_->stopped(step, reason, seconds);
  if (events_) events_->flush();
}

void RunFiles::step(const StepReport& report) {
  record_->step(report);
  if (events_) events_->scalars(report.step, scalars_of(report));
}

void RunFiles::eval(int64_t step, double valid_loss) {
  record_->eval(step, valid_loss);
  const std::vector<EventScalar> values{{"loss/validation", static_cast<float>(valid_loss)}};
  if (events_) events_->scalars(step, values);
}

}  // namespace lethe
