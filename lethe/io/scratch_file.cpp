#include "lethe/io/scratch_file.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

/// What file systems say to a hint or an extra that they do not have.
bool is_unsupported(int error) {
  return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == ESPIPE;
}

/// call() until no signal interrupts it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

ScratchFile::ScratchFile(const fs::path& folder) {
  std::string name = (folder / ".lethe-scratch-XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) detail::fail_errno(folder, "create a file in the folder", errno);
  path_ = name;
  file_ = std::make_unique<detail::File>(path_, fd);
  if (::unlink(name.c_str()) != 0) detail::fail_errno(path_, "remove the name", errno);
}

ScratchFile::~ScratchFile() = default;

void ScratchFile::reserve(uint64_t size) {
  if (size <= size_) return;
  const auto end = static_cast<off_t>(size);
  int result = uninterrupted([&] { return ::fallocate(file_->fd(), 0, 0, end); });
  if (result != 0 && is_unsupported(errno))
    result = uninterrupted([&] { return ::ftruncate(file_->fd(), end); });
  if (result != 0) detail::fail_errno(path_, "reserve room", errno);
  size_ = size;
}

void ScratchFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  const auto begin = static_cast<off_t>(offset), size = static_cast<off_t>(bytes.size());
  for (off_t done = 0; done < size;) {
    const auto rest = bytes.subspan(static_cast<size_t>(done));
    const ssize_t written = uninterrupted(
        [&] { return ::pwrite(file_->fd(), rest.data(), rest.size(), begin + done); });
    if (written < 0) detail::fail_errno(path_, "write", errno);
    done += written;
  }
  // Only pages that the device has can leave the memory.
  constexpr unsigned kWriteNow =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int result =
      uninterrupted([&] { return ::sync_file_range(file_->fd(), begin, size, kWriteNow); });
  if (result != 0 && !is_unsupported(errno)) detail::fail_errno(path_, "write", errno);
  ::posix_fadvise(file_->fd(), begin, size, POSIX_FADV_DONTNEED);
}

void ScratchFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  const auto begin = static_cast<off_t>(offset);
  for (size_t done = 0; done < bytes.size();) {
    const auto rest = bytes.subspan(done);
    const ssize_t count = uninterrupted([&] {
      return ::pread(file_->fd(), rest.data(), rest.size(), begin + static_cast<off_t>(done));
    });
    if (count < 0) detail::fail_errno(path_, "read", errno);
    LETHE_CHECK(DataError,
                count > 0,
                "{}: must have {} bytes at {}, got {} before the end of the file; nothing else may "
                "change it: check the device",
                path_.string(),
                bytes.size(),
                offset,
                done);
    done += static_cast<size_t>(count);
  }
  ::posix_fadvise(file_->fd(), begin, static_cast<off_t>(bytes.size()), POSIX_FADV_DONTNEED);
}

}  // namespace lethe
