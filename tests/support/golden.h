#pragma once

#include <map>
#include <string>

namespace at {
class Tensor;
}

namespace lethe::test {

using TensorMap = std::map<std::string, at::Tensor>;

/// All tensors of a safetensors file (F32, F64, I32, I64, U8), as owned CPU tensors of their stored
/// dtype. Throws DataError naming the file on anything else.
TensorMap load_safetensors(const std::string& path);

/// tests/golden/unit/<name>.safetensors with every floating tensor widened to float64.
TensorMap load_unit(const std::string& name);

}  // namespace lethe::test
