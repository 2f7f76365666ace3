#include "lethe/io/safetensors.h"

#include <algorithm>
#include <unordered_map>

#include "lethe/base/error.h"
#include "lethe/base/nearest.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/mapped_file.h"

namespace lethe {

namespace {

MappedFile map_file(const std::filesystem::path& path) {
  try {
    return MappedFile(path);
  } catch (const DataError& error) {
    // "PATH: cannot open the file, got ...", with the rule behind the path
    std::string text = error.what();
    text.insert(std::min(path.string().size(), text.size()), " [E-ST-OPEN]");
    throw CheckpointError(text);
  }
}

}  // namespace

struct SafetensorsFile::Mapping {
  explicit Mapping(const std::filesystem::path& name)
      : path(name.string()),
        file(map_file(name)),
        header(parse_safetensors_header(file.bytes(), file.bytes().size(), path)) {
    for (const auto& tensor : header.tensors) by_name.emplace(tensor.name, &tensor);
  }

  std::string path;
  MappedFile file;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const StoredTensor*> by_name;
};

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
  const uint64_t now = mapping_->file.size_now();
  LETHE_CHECK(CheckpointError,
              now == mapping_->file.bytes().size(),
              "{} [E-ST-CHANGED]: must keep its {} bytes while it is read, got {}; is another "
              "program writing it?",
              path(),
              mapping_->file.bytes().size(),
              now);
  return mapping_->file.bytes().subspan(static_cast<size_t>(tensor.begin),
                                        static_cast<size_t>(tensor.num_bytes));
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
