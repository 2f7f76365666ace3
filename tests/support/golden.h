#pragma once

#include <map>
#include <string>

namespace at {
class Tensor;
}

namespace lethe::test {

using TensorMap = std::map<std::string, at::Tensor>;

/// All tensors of a safetensors file, copied, in their stored dtype.
TensorMap load_safetensors(const std::string& path);

/// tests/golden/unit/<name>.safetensors with every floating tensor widened to float64.
TensorMap load_unit(const std::string& name);

}  // namespace lethe::test
