#include "lethe/io/line_file.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/file_impl.h"

namespace lethe {

LineFile::LineFile(const std::filesystem::path& path)
    : file_(std::make_unique<detail::File>(path, O_RDWR | O_CREAT | O_APPEND, "open the file")) {
  const off_t size = ::lseek(file_->fd(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file_->fd(), &last, 1, size - 1) != 1)
    detail::fail_errno(path, "read the file", errno);
  if (last != '\n') append("");
}

LineFile::LineFile(LineFile&&) noexcept = default;

LineFile& LineFile::operator=(LineFile&&) noexcept = default;

LineFile::~LineFile() = default;

void LineFile::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos)
    fail_internal("a line must not contain a line break");
  std::string text(line);
  text += '\n';
  file_->write_all(std::as_bytes(std::span(text)));
}

void LineFile::sync() {
  file_->sync();
}

}  // namespace lethe
