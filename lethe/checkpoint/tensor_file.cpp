#include "lethe/checkpoint/tensor_file.h"

#include <cstring>

#include "lethe/checkpoint/stored_type_impl.h"
#include "lethe/io/safetensors.h"

namespace lethe {

struct TensorFile::Impl {
  SafetensorsFile file;
};

TensorFile::TensorFile(const std::string& path) : impl_(new Impl{SafetensorsFile(path)}) {}

TensorFile::~TensorFile() = default;

const std::string& TensorFile::path() const {
  return impl_->file.path();
}

std::vector<std::string> TensorFile::names() const {
  std::vector<std::string> out;
  for (const StoredTensor& t : impl_->file.tensors()) out.push_back(t.name);
  return out;
}

bool TensorFile::has(const std::string& name) const {
  return impl_->file.find(name) != nullptr;
}

std::vector<int64_t> TensorFile::shape(const std::string& name) const {
  return impl_->file.at(name).shape;
}

at::Tensor TensorFile::read(const std::string& name) const {
  const StoredTensor& stored = impl_->file.at(name);
  const at::Tensor out =
      at::empty(stored.shape, at::TensorOptions().dtype(detail::tensor_type(path(), stored)));
  const auto bytes = impl_->file.bytes(stored);
  if (!bytes.empty()) std::memcpy(out.data_ptr(), bytes.data(), bytes.size());
  return out;
}

void write_tensor_file(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<at::Tensor> kept;  // contiguous copies must live until the write
  std::vector<TensorToStore> to_store;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.contiguous());
    const auto* data = static_cast<const std::byte*>(kept.back().const_data_ptr());
    to_store.push_back({name,
                        detail::stored_type(name, tensor),
                        tensor.sizes().vec(),
                        {data, kept.back().nbytes()}});
  }
  write_safetensors(path, to_store, {{"format", "pt"}});
}

}  // namespace lethe
