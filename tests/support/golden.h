#pragma once

#include <map>
#include <string>

namespace at {
class Tensor;
}

namespace lethe::test {

/// All tensors of a safetensors file by name, copied. Throws std::runtime_error where the file is
/// missing or has a dtype that the golden sets do not use (F32, F64, I32, I64, U8).
std::map<std::string, at::Tensor> load_safetensors(const std::string& path);

}  // namespace lethe::test
