#include "lethe/data/input_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_impl.h"

namespace lethe {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

}  // namespace

struct InputStream::Impl {
  std::filesystem::path path;
  detail::File file;
  Sha256 hash;
  std::vector<char> buffer = std::vector<char>(kBlockBytes);
  size_t begin = 0;  // of what was read and not given, in the buffer
  size_t end = 0;
  int64_t offset = 0;
  int64_t line = 1;

  explicit Impl(const std::filesystem::path& name)
      : path(name), file(name, O_RDONLY, "open the file") {}

  // Reads behind `end`; false at the end of the file. The buffer must have room.
  bool fill() {
    for (;;) {
      const ssize_t count = ::read(file.fd(), buffer.data() + end, buffer.size() - end);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) detail::fail_errno(path, "read the file", errno);
      end += static_cast<size_t>(count);
      return count > 0;
    }
  }

  // Makes room for at least one more byte behind `end`.
  void make_room() {
    if (end < buffer.size()) return;
    if (begin > 0) {
      std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    } else {
      buffer.resize(2 * buffer.size());
    }
  }

  std::string_view take(size_t count) {
    const std::string_view bytes(buffer.data() + begin, count);
    hash.add(std::as_bytes(std::span(bytes)));
    begin += count;
    offset += static_cast<int64_t>(count);
    return bytes;
  }

  void check_length(size_t bytes, int64_t max_bytes) const {
    LETHE_CHECK(DataError,
                static_cast<int64_t>(bytes) <= max_bytes,
                "{}: line {} (byte {}): a line must have at most {} bytes, got more; break it into "
                "several, or raise --max-document-mb",
                path.string(),
                line,
                offset,
                max_bytes);
  }
};

InputStream::InputStream(const std::filesystem::path& path, Begin begin)
    : impl_(std::make_unique<Impl>(path)) {
  while (impl_->offset < begin.offset) {
    if (impl_->begin == impl_->end) {
      impl_->begin = impl_->end = 0;
      LETHE_CHECK(DataError,
                  impl_->fill(),
                  "{}: must have the {} bytes that were read before, got {}; prepare it anew",
                  path.string(),
                  begin.offset,
                  impl_->offset);
    }
    const auto left = static_cast<size_t>(begin.offset - impl_->offset);
    impl_->take(std::min(left, impl_->end - impl_->begin));
  }
  impl_->line = begin.line;
}

InputStream::InputStream(InputStream&&) noexcept = default;

InputStream::~InputStream() = default;

std::string_view InputStream::next_block() {
  if (impl_->begin == impl_->end) {
    impl_->begin = impl_->end = 0;
    impl_->fill();
  }
  return impl_->take(impl_->end - impl_->begin);
}

bool InputStream::next_line(std::string_view& line, int64_t max_bytes) {
  Impl& in = *impl_;
  size_t scanned = 0;
  for (;;) {
    const char* const first = in.buffer.data() + in.begin;
    const size_t size = in.end - in.begin;
    const void* const found = std::memchr(first + scanned, '\n', size - scanned);
    if (found != nullptr) {
      const auto length = static_cast<size_t>(static_cast<const char*>(found) - first);
      in.check_length(length, max_bytes);
      line = in.take(length + 1).substr(0, length);
      break;
    }
    in.check_length(size, max_bytes);
    scanned = size;
    in.make_room();
    if (in.fill()) continue;
    if (size == 0) return false;
    line = in.take(size);  // the last line has no line end
    break;
  }
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++in.line;
  return true;
}

int64_t InputStream::line() const {
  return impl_->line;
}

int64_t InputStream::offset() const {
  return impl_->offset;
}

std::string InputStream::sha256() const {
  return impl_->hash.hex();
}

}  // namespace lethe
