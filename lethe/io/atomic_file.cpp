#include "lethe/io/atomic_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

// Two writers of one target, in one process or several, never share a temporary file.
fs::path temporary_name(const fs::path& target) {
  static std::atomic<unsigned> counter{0};
  fs::path name = target;
  name += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
  return name;
}

fs::path folder_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(fs::path target)
    : target_(std::move(target)),
      temporary_(temporary_name(target_)),
      file_(std::make_unique<detail::File>(
          temporary_, O_WRONLY | O_CREAT | O_TRUNC, "create the file")) {}

AtomicFile::~AtomicFile() {
  if (file_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!file_) fail_internal(fmt::format("{}: written after its commit", target_.string()));
  file_->write_all(bytes);
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  if (!file_) fail_internal(fmt::format("{}: committed twice", target_.string()));
  file_->sync();
  rename_durably(temporary_, target_);
  const auto renamed = std::move(file_);
  renamed->close();
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) detail::fail_errno(to, "replace the file", errno);
  // The name must survive a power cut too.
  detail::File(folder_of(to), O_RDONLY | O_DIRECTORY, "open the folder").sync();
}

void write_file_atomically(const fs::path& target, std::span<const std::byte> bytes) {
  AtomicFile file(target);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const fs::path& target, std::string_view text) {
  write_file_atomically(target, std::as_bytes(std::span(text)));
}

std::string read_text_file(const fs::path& path) {
  const detail::File file(path, O_RDONLY, "open the file");
  std::string text;
  constexpr size_t kChunk = 1 << 16;
  for (size_t filled = 0;;) {
    text.resize(filled + kChunk);
    const ssize_t count = ::read(file.fd(), text.data() + filled, kChunk);
    if (count < 0 && errno != EINTR) detail::fail_errno(path, "read the file", errno);
    filled += count > 0 ? static_cast<size_t>(count) : 0;
    if (count == 0) {
      text.resize(filled);
      return text;
    }
  }
}

void ensure_writable_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) detail::fail_errno(folder, "make the folder", error.value());
  const fs::path probe = temporary_name(folder / "probe");
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) detail::fail_errno(folder, "create a file in the folder", errno);
  ::close(fd);
  ::unlink(probe.c_str());
}

}  // namespace lethe
