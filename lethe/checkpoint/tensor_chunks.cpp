#include "lethe/checkpoint/tensor_chunks.h"

#include <cstring>
#include <set>

#include <ATen/core/Tensor.h>

#include "lethe/base/error.h"
#include "lethe/checkpoint/stored_type_impl.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

std::string name_in(const std::string& key) {
  return key.substr(0, key.find('|'));
}

void expect_plain(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous())
    fail_internal(fmt::format("checkpoint: {} is no contiguous CPU tensor", name));
}

}  // namespace

std::string chunk_key(const std::string& name, const std::vector<int64_t>& shape) {
  std::string key = name + "|box=";
  for (size_t d = 0; d < shape.size(); ++d)
    key += fmt::format("{}0:{}", d > 0 ? "," : "", shape[d]);
  return key;
}

TensorToStore chunk_of(const std::string& name, const at::Tensor& tensor) {
  expect_plain(name, tensor);
  return {chunk_key(name, tensor.sizes().vec()),
          detail::stored_type(name, tensor),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

void read_chunk(const SafetensorsFile& file, const std::string& name, const at::Tensor& tensor) {
  expect_plain(name, tensor);
  const StoredTensor* stored = file.find(chunk_key(name, tensor.sizes().vec()));
  LETHE_CHECK(
      CheckpointError,
      stored != nullptr,
      "{} [E-CKPT-TENSOR]: must hold the whole of '{}' {}, got no such chunk; it was "
      "written by another model, or with other trained parameters (--allow-setting-changes)",
      file.path(),
      name,
      shape_text(tensor));
  const at::ScalarType type = detail::tensor_type(file.path(), *stored);
  LETHE_CHECK(CheckpointError,
              type == tensor.scalar_type(),
              "{} [E-CKPT-TENSOR]: '{}' must be {}, got {}; give or leave out --bf16 as the run "
              "did that wrote it",
              file.path(),
              name,
              dtype_text(tensor),
              dtype_name(stored->dtype));
  const auto bytes = file.bytes(*stored);
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
}

void expect_only(const SafetensorsFile& file, const std::vector<std::string>& names) {
  const std::set<std::string> known(names.begin(), names.end());
  for (const StoredTensor& stored : file.tensors())
    LETHE_CHECK(
        CheckpointError,
        known.contains(name_in(stored.name)),
        "{} [E-CKPT-TENSOR]: must hold only tensors of this model, got '{}'; it was written "
        "by another model",
        file.path(),
        stored.name);
}

}  // namespace lethe
