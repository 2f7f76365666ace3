#include "lethe/io/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/file_impl.h"
#include "lethe/io/host_name.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kTries = 20;
constexpr std::chrono::milliseconds kPause{10};
constexpr size_t kLongestCommand = 1000;

fs::path lock_file(const fs::path& folder) {
  return folder / ".lock";
}

/// The arguments of this process, which the kernel ends with zero bytes each.
std::string command_line() {
  std::string text = read_text_file("/proc/self/cmdline").substr(0, kLongestCommand);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text)
    if (c == '\0') c = ' ';
  return text;
}

std::string own_line() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const Json line{{"host", host_name()},
                  {"pid", ::getpid()},
                  {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                  {"command", command_line()}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_field(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

LockHolder read_holder(const fs::path& file) {
  const Json line = Json::parse(read_text_file(file), nullptr, /*allow_exceptions=*/false);
  LockHolder holder;
  if (!line.is_object()) return holder;
  holder.host = text_field(line, "host");
  holder.started = text_field(line, "started");
  holder.command = text_field(line, "command");
  const auto pid = line.find("pid");
  if (pid != line.end() && pid->is_number_integer()) holder.pid = pid->get<int64_t>();
  return holder;
}

[[noreturn]] void refuse(const fs::path& folder) {
  const LockHolder holder = read_holder(lock_file(folder));
  LETHE_CHECK(DataError,
              holder.pid != 0,
              "{} [lock]: must not be in use by another process, got one that did not write its "
              "name to {}; wait for its end, or choose another folder",
              folder.string(),
              lock_file(folder).string());
  fail<DataError>(
      "{} [lock]: must not be in use by another process, got process {} on host '{}' since {} "
      "({}); wait for its end, stop it (kill {}), or choose another folder",
      folder.string(),
      holder.pid,
      holder.host,
      holder.started,
      holder.command,
      holder.pid);
}

/// False where another open file has the lock.
bool try_lock(const detail::File& file, int kind, const fs::path& folder) {
  int result = 0;
  do result = ::flock(file.fd(), kind | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EWOULDBLOCK) detail::fail_errno(folder, "lock the folder", errno);
  return result == 0;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : file_(std::make_unique<detail::File>(
          lock_file(folder), O_RDWR | O_CREAT, "open the lock file")) {
  for (int tries = 1; !try_lock(*file_, LOCK_EX, folder); ++tries) {
    if (tries == kTries) refuse(folder);
    std::this_thread::sleep_for(kPause);
  }
  if (::ftruncate(file_->fd(), 0) != 0)
    detail::fail_errno(lock_file(folder), "write the lock file", errno);
  file_->write_all(std::as_bytes(std::span<const char>(own_line())));
}

FolderLock::FolderLock(FolderLock&&) noexcept = default;

FolderLock& FolderLock::operator=(FolderLock&&) noexcept = default;

// Only closes: an explicit unlock in a forked child would free its parent's lock.
FolderLock::~FolderLock() = default;

std::optional<LockHolder> folder_lock_holder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(lock_file(folder), error)) return std::nullopt;
  const detail::File file(lock_file(folder), O_RDONLY, "open the lock file");
  if (try_lock(file, LOCK_SH, folder)) return std::nullopt;
  return read_holder(lock_file(folder));
}

}  // namespace lethe
