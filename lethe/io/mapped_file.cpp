#include "lethe/io/mapped_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lethe/io/file_impl.h"

namespace lethe {

struct MappedFile::Mapping {
  std::filesystem::path path;
  detail::File file;
  const std::byte* data = nullptr;
  size_t size = 0;

  explicit Mapping(const std::filesystem::path& name)
      : path(name), file(name, O_RDONLY, "open the file") {
    size = static_cast<size_t>(size_now());
    if (size == 0) return;  // mmap would only say "invalid argument"
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (address == MAP_FAILED) detail::fail_errno(path, "map the file", errno);
    data = static_cast<const std::byte*>(address);
  }

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ~Mapping() {
    if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
  }

  [[nodiscard]] uint64_t size_now() const {
    struct stat status {};

    if (::fstat(file.fd(), &status) != 0) detail::fail_errno(path, "read the size", errno);
    if (!S_ISREG(status.st_mode))
      detail::fail_errno(path, "map the file", S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    return static_cast<uint64_t>(status.st_size);
  }
};

MappedFile::MappedFile(const std::filesystem::path& path)
    : mapping_(std::make_unique<Mapping>(path)) {}

MappedFile::MappedFile(MappedFile&&) noexcept = default;

MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;

MappedFile::~MappedFile() = default;

const std::filesystem::path& MappedFile::path() const {
  return mapping_->path;
}

std::span<const std::byte> MappedFile::bytes() const {
  return {mapping_->data, mapping_->size};
}

uint64_t MappedFile::size_now() const {
  return mapping_->size_now();
}

}  // namespace lethe
