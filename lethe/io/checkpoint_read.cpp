#include <algorithm>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checkpoint_folder.h"
#include "lethe/io/checksum.h"
#include "lethe/io/mapped_file.h"

namespace lethe {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDamaged = "the checkpoint is damaged";

void check_file(const fs::path& path, const FileEntry& entry) {
  std::error_code none;
  const bool there = fs::is_regular_file(path, none);
  const int64_t size = there ? static_cast<int64_t>(fs::file_size(path)) : 0;
  LETHE_CHECK(CheckpointError,
              there && size == entry.num_bytes,
              "{} [E-CKPT-FILE]: must have {} bytes, got {}; {}",
              path.string(),
              entry.num_bytes,
              there ? std::to_string(size) : "no such file",
              kDamaged);
  if (entry.sha256.empty()) return;
  const std::string got = sha256_of_file(path);
  LETHE_CHECK(CheckpointError,
              got == entry.sha256,
              "{} [E-CKPT-SHA256]: SHA-256 must be {}, got {}; {}",
              path.string(),
              entry.sha256,
              got,
              kDamaged);
}

// The header of a data file: everything before its chunks, which have their own sums.
void check_front(const fs::path& path, const FileEntry& entry, int64_t chunk_bytes) {
  const MappedFile file(path);
  const auto size = static_cast<int64_t>(file.bytes().size());
  const bool fits = chunk_bytes <= size;
  const uint32_t got =
      fits ? crc32c(file.bytes().first(static_cast<size_t>(size - chunk_bytes))) : 0;
  LETHE_CHECK(CheckpointError,
              fits && got == entry.front_crc,
              "{} [E-CKPT-CRC]: its header must have CRC-32C {:08x}, got {:08x}; {}",
              path.string(),
              entry.front_crc,
              got,
              kDamaged);
}

void expect_ours(const fs::path& folder) {
  LETHE_CHECK(CheckpointError,
              fs::is_directory(folder),
              "{} [E-CKPT-NONE]: must be a folder with checkpoints, got {}; check --load",
              folder.string(),
              fs::exists(folder) ? "a file" : "nothing there");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool foreign = name == "latest_checkpointed_iteration.txt" || name.starts_with("iter_") ||
                         name == ".metadata" || name == "model.safetensors.index.json";
    LETHE_CHECK(CheckpointError,
                !foreign,
                "{} [E-CKPT-FOREIGN]: must hold checkpoints of Lethe, got '{}' of another program; "
                "bring its weights into the hub's form first",
                folder.string(),
                name);
  }
}

std::string older_steps(const fs::path& folder, int64_t before) {
  std::vector<std::string> names;
  for (const int64_t step : steps_in(folder))
    if (step < before) names.push_back(step_name(step));
  if (names.empty()) return "there is no older one; start anew";
  return fmt::format(
      "older ones there: {}; --allow-fallback-checkpoint goes on from the newest whole one",
      fmt::join(names, ", "));
}

OpenedCheckpoint open_older(const fs::path& folder,
                            int64_t damaged,
                            const std::string& reason,
                            std::string& message) {
  const std::vector<int64_t> steps = steps_in(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= damaged) continue;
    try {
      OpenedCheckpoint opened(folder / step_name(*step));
      message = fmt::format("{} is damaged ({}); going on from {}, the newest whole one",
                            step_name(damaged),
                            reason,
                            step_name(*step));
      return opened;
    } catch (const Error&) {  // damaged too: the next older one
    }
  }
  fail<CheckpointError>(
      "{} [E-CKPT-DAMAGED]: {} must be whole, or an older one, got none: {}; start anew",
      folder.string(),
      step_name(damaged),
      reason);
}

}  // namespace

OpenedCheckpoint::OpenedCheckpoint(const fs::path& step_folder) : folder_(step_folder) {
  const std::string path = (folder_ / "manifest.json").string();
  manifest_ = parse_manifest(read_text_file(path), path);
  LETHE_CHECK(CheckpointError,
              step_name(manifest_.step) == folder_.filename().string() ||
                  folder_.filename().string().starts_with('.'),
              "{} [E-CKPT-STEP]: must describe {}, got step {}; {}",
              path,
              folder_.filename().string(),
              manifest_.step,
              kDamaged);
  for (const FileEntry& entry : manifest_.files) {
    check_file(folder_ / entry.name, entry);
    if (entry.name.ends_with(".safetensors"))
      files_.emplace(entry.name, SafetensorsFile(folder_ / entry.name));
  }
  const bool has_common =
      std::any_of(manifest_.files.begin(), manifest_.files.end(), [](const FileEntry& f) {
        return f.name == "common.json" && !f.sha256.empty();
      });
  LETHE_CHECK(CheckpointError,
              has_common,
              "{} [E-CKPT-FILE]: must list common.json with its SHA-256, got no such entry; {}",
              path,
              kDamaged);
  common_ = read_text_file(folder_ / "common.json");
  check_chunks();
}

void OpenedCheckpoint::check_chunks() const {
  size_t stored = 0;
  for (const auto& [name, file] : files_) stored += file.tensors().size();
  LETHE_CHECK(
      CheckpointError,
      stored == manifest_.chunks.size(),
      "{} [E-CKPT-FILE]: the data files must hold the {} chunks of the manifest, got {}; {}",
      folder_.string(),
      manifest_.chunks.size(),
      stored,
      kDamaged);
  std::map<std::string, int64_t> chunk_bytes;
  for (const ChunkEntry& chunk : manifest_.chunks) chunk_bytes[chunk.file] += chunk.num_bytes;
  for (const FileEntry& entry : manifest_.files)
    if (files_.contains(entry.name))
      check_front(folder_ / entry.name, entry, chunk_bytes[entry.name]);
  for (const ChunkEntry& chunk : manifest_.chunks) {
    const SafetensorsFile& data = file(chunk.file);
    const auto bytes = data.bytes(data.at(chunk.key));
    const uint32_t got = crc32c(bytes);
    LETHE_CHECK(CheckpointError,
                std::cmp_equal(bytes.size(), chunk.num_bytes) && got == chunk.crc,
                "{} [E-CKPT-CRC]: chunk '{}' must have {} bytes with CRC-32C {:08x}, got {} with "
                "{:08x}; {}",
                data.path(),
                chunk.key,
                chunk.num_bytes,
                chunk.crc,
                bytes.size(),
                got,
                kDamaged);
  }
}

const SafetensorsFile& OpenedCheckpoint::file(const std::string& name) const {
  const auto found = files_.find(name);
  LETHE_CHECK(CheckpointError,
              found != files_.end(),
              "{} [E-CKPT-FILE]: must hold {}, got no such file; {}",
              folder_.string(),
              name,
              kDamaged);
  return found->second;
}

OpenedCheckpoint open_latest(const fs::path& folder,
                             int64_t contract_version,
                             bool allow_fallback,
                             std::string& message) {
  expect_ours(folder);
  const std::optional<int64_t> latest = latest_step(folder);
  const std::vector<int64_t> steps = steps_in(folder);
  LETHE_CHECK(CheckpointError,
              latest || (allow_fallback && !steps.empty()),
              "{} [E-CKPT-NONE]: must hold a checkpoint, got no LATEST{}; {}",
              folder.string(),
              steps.empty() ? "" : fmt::format(" beside {} step folder(s)", steps.size()),
              fs::exists(folder / "checkpoints" / "LATEST")
                  ? fmt::format("did you mean --load {}?", (folder / "checkpoints").string())
              : steps.empty() ? "check --load; a run that ended before its first save starts anew"
                              : "--allow-fallback-checkpoint goes on from the newest whole one");
  const int64_t newest = latest ? *latest : steps.back();
  std::optional<OpenedCheckpoint> opened;
  std::string reason;
  try {
    opened.emplace(folder / step_name(newest));
  } catch (const Error& error) {
    reason = error.what();
  }
  LETHE_CHECK(CheckpointError,
              opened || allow_fallback,
              "{} [E-CKPT-DAMAGED]: {}, the newest checkpoint, must be whole, got: {}; {}",
              folder.string(),
              step_name(newest),
              reason,
              older_steps(folder, newest));
  if (!opened) opened = open_older(folder, newest, reason, message);
  opened->set_latest(latest);
  LETHE_CHECK(CheckpointError,
              opened->manifest().contract_version == contract_version,
              "{} [E-CKPT-CONTRACT]: the contract version must be {}, got {}; use the Lethe that "
              "wrote it",
              opened->folder().string(),
              contract_version,
              opened->manifest().contract_version);
  return std::move(*opened);
}

}  // namespace lethe
