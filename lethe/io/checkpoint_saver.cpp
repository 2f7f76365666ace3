#include "lethe/io/checkpoint_saver.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

int64_t size_of(const CheckpointParts& parts) {
  int64_t sum = 0;
  for (const CheckpointParts::File& file : parts.files)
    for (const TensorToStore& t : file.tensors) sum += static_cast<int64_t>(t.data.size());
  return sum;
}

}  // namespace

// One request: what to write, and in the background the copies that it is written from.
struct CheckpointSaver::Job {
  CheckpointParts parts;
  int64_t num_bytes = 0;
  Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::filesystem::path unfinished;
  std::exception_ptr failure;
  std::atomic<bool> done{false};
  std::thread thread;

  explicit Job(const CheckpointParts& wanted) : parts(wanted), num_bytes(size_of(wanted)) {}

  ~Job() {
    if (thread.joinable()) thread.join();
  }

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The bytes that stay valid when the caller goes on.
  void copy_tensors() {
    for (CheckpointParts::File& file : parts.files)
      for (TensorToStore& t : file.tensors) {
        copies.emplace_back(new std::byte[t.data.size()]);
        if (!t.data.empty()) std::memcpy(copies.back().get(), t.data.data(), t.data.size());
        t.data = {copies.back().get(), t.data.size()};
      }
  }

  void write(const std::filesystem::path& folder) {
    try {
      unfinished = write_unfinished(folder, parts);
    } catch (...) {
      failure = std::current_exception();
    }
    done = true;
  }
};

CheckpointSaver::CheckpointSaver(Settings settings) : settings_(std::move(settings)) {
  LETHE_CHECK(ConfigError,
              settings_.retention.keep_last >= 1,
              "--keep-last: must be >= 1, got {}; the newest checkpoint always stays",
              settings_.retention.keep_last);
  ensure_writable_folder(settings_.folder);
  tidy();  // what a killed process left
}

std::vector<int64_t> CheckpointSaver::tidy() {
  try {
    return prune(settings_.folder, settings_.retention);
  } catch (const Error& error) {  // the saves themselves are unharmed
    log_warn(
        "{}: old checkpoints could not be removed: {}", settings_.folder.string(), error.what());
    return {};
  }
}

CheckpointSaver::~CheckpointSaver() {
  if (!job_) return;
  job_->thread.join();
  std::error_code ignored;
  if (!job_->unfinished.empty()) std::filesystem::remove_all(job_->unfinished, ignored);
}

SavedCheckpoint CheckpointSaver::commit(const std::filesystem::path& unfinished, const Job& job) {
  const int64_t step = job.parts.step;
  const bool is_new = commit_checkpoint(settings_.folder, unfinished, step);
  SavedCheckpoint saved{.step = step,
                        .folder = settings_.folder / step_name(step),
                        .num_bytes = job.num_bytes,
                        .seconds = 0,
                        .was_there = !is_new,
                        .removed = tidy()};
  saved.seconds = std::chrono::duration<double>(Clock::now() - job.begin).count();
  return saved;
}

SaveOutcome CheckpointSaver::save(const CheckpointParts& parts, bool now) {
  SaveOutcome outcome;
  const bool background = settings_.in_background && !now;
  if (job_ && background && settings_.policy == AsyncSavePolicy::Skip && !job_->done) {
    log_warn(
        "checkpoint of step {} left out: the save of step {} is still under way "
        "(--async-save-policy skip)",
        parts.step,
        job_->parts.step);
    outcome.left_out = true;
    return outcome;
  }
  try {
    if (auto earlier = wait()) outcome.committed.push_back(std::move(*earlier));
  } catch (const Error&) {
    outcome.earlier_failure = std::current_exception();
  }
  auto job = std::make_unique<Job>(parts);
  if (!background) {
    outcome.committed.push_back(commit(write_unfinished(settings_.folder, parts), *job));
    return outcome;
  }
  job->copy_tensors();
  job->thread = std::thread([job = job.get(), folder = settings_.folder] { job->write(folder); });
  job_ = std::move(job);
  return outcome;
}

std::optional<SavedCheckpoint> CheckpointSaver::poll() {
  if (!job_ || !job_->done) return std::nullopt;
  return wait();
}

std::optional<SavedCheckpoint> CheckpointSaver::wait() {
  if (!job_) return std::nullopt;
  job_->thread.join();
  const std::unique_ptr<Job> job = std::move(job_);
  if (job->failure) std::rethrow_exception(job->failure);
  return commit(job->unfinished, *job);
}

}  // namespace lethe
