#include "support/golden.h"

#include "lethe/checkpoint/tensor_file.h"

#include <nlohmann/json.hpp>

namespace lethe::test {

std::map<std::string, at::Tensor> load_safetensors(const std::string& path) {
  const TensorFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.read(name));
  return tensors;
}

}  // namespace lethe::test
