#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checkpoint_folder.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_impl.h"
#include "lethe/io/mapped_file.h"

namespace lethe {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStep = "step-", kUnfinished = ".tmp-step-", kTrash = ".trash-step-";

void sync_folder(const fs::path& folder) {
  detail::File(folder, O_RDONLY | O_DIRECTORY, "open the folder").sync();
}

std::string nonce() {
  static std::atomic<int> counter{0};
  return fmt::format("{}-{}", ::getpid(), counter++);
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) detail::fail_errno(to, "rename to it", errno);
}

// What was renamed away may stay until the next prune: it carries no step's name.
void remove_trash(const fs::path& trash) {
  std::error_code error;
  fs::remove_all(trash, error);
  if (error)
    log_warn(
        "{}: cannot be removed ({}); the next save tries again", trash.string(), error.message());
}

// In two moves: a half-removed folder must never carry a step's name.
void remove_step(const fs::path& folder, int64_t step) {
  const fs::path trash = folder / fmt::format("{}{}-{}", kTrash, step, nonce());
  rename_folder(folder / step_name(step), trash);
  sync_folder(folder);
  remove_trash(trash);
}

// Puts `unfinished` in the place of the step's old folder; at no moment is there neither.
void replace_step(const fs::path& folder, const fs::path& unfinished, int64_t step) {
  const fs::path target = folder / step_name(step);
  const fs::path trash = folder / fmt::format("{}{}-{}", kTrash, step, nonce());
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    rename_folder(unfinished, trash);
  } else {  // a file system that cannot exchange: two moves, one right after the other
    rename_folder(target, trash);
    rename_folder(unfinished, target);
  }
  sync_folder(folder);
  remove_trash(trash);
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  return step_name(step) == name ? std::optional(step) : std::nullopt;
}

// Chunk and file entries of one data file, which is written here.
void write_data(const fs::path& folder,
                const CheckpointParts::File& file,
                bool sha256,
                CheckpointManifest& manifest) {
  size_t chunk_bytes = 0;
  for (const TensorToStore& t : file.tensors) {
    chunk_bytes += t.data.size();
    manifest.chunks.push_back(
        {t.name, file.name, static_cast<int64_t>(t.data.size()), crc32c(t.data)});
  }
  const fs::path path = folder / file.name;
  write_safetensors(path, file.tensors, {{"format", "pt"}});
  const MappedFile written(path);
  const size_t size = written.bytes().size();
  manifest.files.push_back({file.name,
                            static_cast<int64_t>(size),
                            crc32c(written.bytes().first(size - chunk_bytes)),
                            sha256 ? sha256_of_file(path) : ""});
}

void write_all(const fs::path& unfinished, const CheckpointParts& parts) {
  CheckpointManifest manifest{.contract_version = parts.contract_version,
                              .step = parts.step,
                              .writer = parts.writer,
                              .layout = parts.layout,
                              .files = {},
                              .chunks = {}};
  for (const CheckpointParts::File& file : parts.files)
    write_data(unfinished, file, parts.sha256, manifest);
  write_file_atomically(unfinished / "common.json", parts.common);
  manifest.files.push_back({"common.json",
                            static_cast<int64_t>(parts.common.size()),
                            0,
                            sha256_hex(std::as_bytes(std::span(parts.common)))});
  write_file_atomically(unfinished / "manifest.json", manifest_text(manifest));
  sync_folder(unfinished);
}

// Whether the folder is whole and holds what `unfinished` does.
bool holds_the_same(const fs::path& step_folder, const fs::path& unfinished) {
  try {
    return OpenedCheckpoint(step_folder).manifest() ==
           parse_manifest(read_text_file(unfinished / "manifest.json"), unfinished.string());
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string step_name(int64_t step) {
  return fmt::format("{}{:010}", kStep, step);
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> latest_step(const fs::path& folder) {
  const fs::path path = folder / "LATEST";
  if (!fs::exists(path)) return std::nullopt;
  const std::string text = read_text_file(path);
  const auto step = text.empty() || text.back() != '\n'
                        ? std::nullopt
                        : step_of(std::string_view(text).substr(0, text.size() - 1));
  LETHE_CHECK(
      CheckpointError,
      step.has_value(),
      "{} [E-CKPT-LATEST]: must be one line such as {}, got '{}'; write the name of a whole "
      "checkpoint of this folder into it",
      path.string(),
      step_name(100),
      text.substr(0, 40));
  return step;
}

fs::path write_unfinished(const fs::path& folder, const CheckpointParts& parts) {
  const fs::path unfinished = folder / fmt::format("{}{}-{}", kUnfinished, parts.step, nonce());
  std::error_code error;
  fs::create_directories(unfinished, error);
  if (error) detail::fail_errno(unfinished, "make the folder", error.value());
  try {
    write_all(unfinished, parts);
  } catch (...) {
    fs::remove_all(unfinished, error);
    throw;
  }
  return unfinished;
}

bool commit_checkpoint(const fs::path& folder, const fs::path& unfinished, int64_t step) {
  const fs::path target = folder / step_name(step);
  std::error_code none;
  const bool there = fs::exists(target, none);
  const bool keep = there && holds_the_same(target, unfinished);
  if (keep)
    remove_trash(unfinished);
  else if (there)
    replace_step(folder, unfinished, step);
  else
    rename_folder(unfinished, target);
  sync_folder(folder);
  set_latest(folder, step);
  return !keep;
}

void set_latest(const fs::path& folder, int64_t step) {
  write_file_atomically(folder / "LATEST", step_name(step) + "\n");
}

std::vector<int64_t> prune(const fs::path& folder, const Retention& retention) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kUnfinished) || name.starts_with(kTrash))
      leftovers.push_back(entry->path());
  }
  if (error) detail::fail_errno(folder, "read the folder", error.value());
  for (const fs::path& path : leftovers) remove_trash(path);
  const std::optional<int64_t> latest = latest_step(folder);
  if (!latest) return {};
  std::vector<int64_t> steps = steps_in(folder);
  // Beyond LATEST lies what a fallback left behind: neither counted nor removed.
  std::erase_if(steps, [&](int64_t step) { return step > *latest; });
  std::vector<int64_t> removed;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool newest = std::cmp_less_equal(steps.size() - i, retention.keep_last);
    const bool retained =
        retention.retain_interval > 0 && steps[i] % retention.retain_interval == 0;
    if (newest || retained || steps[i] == latest) continue;
    remove_step(folder, steps[i]);
    removed.push_back(steps[i]);
  }
  return removed;
}

}  // namespace lethe
