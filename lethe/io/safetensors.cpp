#include "lethe/io/safetensors.h"

#include <cerrno>
#include <system_error>
#include <unordered_map>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/base/nearest.h"
#include "lethe/io/atomic_file.h"

namespace lethe {

struct SafetensorsFile::Mapping {
  explicit Mapping(const std::filesystem::path& file);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ~Mapping() { release(); }

  [[nodiscard]] size_t current_size() const;
  [[noreturn]] void refuse_open(int error) const;
  void map();
  void release() const;

  std::string path;
  int fd = -1;
  const std::byte* data = nullptr;
  size_t size = 0;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const StoredTensor*> by_name;
};

SafetensorsFile::Mapping::Mapping(const std::filesystem::path& file) : path(file.string()) {
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse_open(errno);
  try {
    map();
    header = parse_safetensors_header({data, size}, size, path);
  } catch (...) {
    release();
    throw;
  }
  for (const auto& tensor : header.tensors) by_name.emplace(tensor.name, &tensor);
}

void SafetensorsFile::Mapping::map() {
  size = current_size();
  if (size == 0) return;  // refused by the parser, mmap would only say "invalid argument"
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) refuse_open(errno);
  data = static_cast<const std::byte*>(address);
}

void SafetensorsFile::Mapping::release() const {
  if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
  if (fd >= 0) ::close(fd);
}

size_t SafetensorsFile::Mapping::current_size() const {
  struct stat status {};

  if (::fstat(fd, &status) != 0) refuse_open(errno);
  if (!S_ISREG(status.st_mode)) refuse_open(S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  return static_cast<size_t>(status.st_size);
}

void SafetensorsFile::Mapping::refuse_open(int error) const {
  fail<CheckpointError>("{} [E-ST-OPEN]: must be a readable file, got '{}'; check the path",
                        path,
                        std::generic_category().message(error));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : mapping_(std::make_unique<Mapping>(path)) {}

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const {
  return mapping_->path;
}

const std::vector<StoredTensor>& SafetensorsFile::tensors() const {
  return mapping_->header.tensors;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return mapping_->header.metadata;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = mapping_->by_name.find(name);
  return found == mapping_->by_name.end() ? nullptr : found->second;
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& tensor : tensors()) names.push_back(tensor.name);
  fail<CheckpointError>("{} [E-ST-MISSING]: must hold a tensor '{}', got {} others; {}",
                        path(),
                        name,
                        names.size(),
                        did_you_mean(name, names, "is this the right file?"));
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  const size_t now = mapping_->current_size();
  LETHE_CHECK(CheckpointError,
              now == mapping_->size,
              "{} [E-ST-CHANGED]: must keep its {} bytes while it is read, got {}; is another "
              "program writing it?",
              path(),
              mapping_->size,
              now);
  return {mapping_->data + tensor.begin, static_cast<size_t>(tensor.num_bytes)};
}

void write_safetensors(const std::filesystem::path& target,
                       std::span<const TensorToStore> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<StoredTensor> described;
  std::unordered_map<std::string_view, std::span<const std::byte>> data;
  for (const auto& tensor : tensors) {
    described.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    data.emplace(tensor.name, tensor.data);
  }
  const std::string path = target.string();
  const auto header = lay_out_safetensors(std::move(described), metadata, path);
  for (const auto& tensor : header.tensors) {
    const size_t got = data.at(tensor.name).size();
    LETHE_CHECK(CheckpointError,
                got == static_cast<size_t>(tensor.num_bytes),
                "{} [E-ST-LENGTH]: tensor '{}' must bring {} bytes, got {}",
                path,
                tensor.name,
                tensor.num_bytes,
                got);
  }
  AtomicFile file(target);
  file.write(safetensors_header_bytes(header, path));
  for (const auto& tensor : header.tensors) file.write(data.at(tensor.name));
  file.commit();
}

}  // namespace lethe
