#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "lethe/io/safetensors.h"

// Inside lethe/checkpoint only.
namespace lethe::detail {

/// The type on disk of a tensor in memory. DtypeError naming it where the format has none.
StoredDtype stored_type(const std::string& name, const at::Tensor& tensor);

/// The type in memory of a tensor on disk. CheckpointError [E-ST-DTYPE] where it holds no plain
/// numbers.
at::ScalarType tensor_type(const std::string& path, const StoredTensor& stored);

}  // namespace lethe::detail
