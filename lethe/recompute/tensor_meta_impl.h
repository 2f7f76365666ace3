#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

namespace lethe {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// What must be equal in a replay.
struct TensorMeta {
  c10::DimVector sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;

  explicit TensorMeta(const at::Tensor& t);
  bool operator==(const TensorMeta&) const = default;
  /// "[4,8] float32 on cpu, strides [8,1], offset 0"
  [[nodiscard]] std::string text() const;
};

/// Whether the tensor can be rebuilt as sizes, strides and offset over a storage.
bool is_plain_strided(const at::Tensor& t);

/// The tensor's storage, or nullptr where it has none.
const c10::StorageImpl* storage_of(const at::Tensor& t);

/// An empty weak reference for a tensor without storage.
WeakStorage weak_storage_of(const at::Tensor& t);

/// 0 for inference tensors, which count no versions.
uint32_t version_of(const at::Tensor& t);

/// A tensor over these bytes, without autograd. `keys`: those of a tensor of the same device.
at::Tensor tensor_over(c10::Storage storage, c10::DispatchKeySet keys, const TensorMeta& meta);

/// A hash of the values; equal bytes in equal order hash equal.
uint64_t hash_values(const at::Tensor& t);

}  // namespace lethe
