#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

namespace lethe::detail {
namespace {

std::string_view advice(int error) {
  switch (error) {
    case ENOENT:
      return "check the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose another place or change its permissions";
    case ENOSPC:
    case EDQUOT:
      return "free some space";
    case ENOTDIR:
    case EISDIR:
      return "a file and a folder were taken for each other, check the path";
    default:
      return "check the device and the path";
  }
}

}  // namespace

void fail_errno(const std::filesystem::path& path, std::string_view what, int error) {
  fail<DataError>("{}: cannot {}, got '{}'; {}",
                  path.string(),
                  what,
                  std::generic_category().message(error),
                  advice(error));
}

File::File(const std::filesystem::path& path, int flags, std::string_view what) : path_(path) {
  do fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail_errno(path, what, errno);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void File::sync() {
  int result = 0;
  do result = ::fsync(fd_);
  while (result != 0 && errno == EINTR);
  // EINVAL: a file system that has nothing to sync, e.g. for folders.
  if (result != 0 && errno != EINVAL) fail_errno(path_, "sync", errno);
}

void File::close() {
  const int result = ::close(fd_);
  fd_ = -1;
  if (result != 0 && errno != EINTR) fail_errno(path_, "close", errno);
}

}  // namespace lethe::detail
