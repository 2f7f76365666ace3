#include "support/golden.h"

#include "lethe/checkpoint/tensor_file.h"

namespace lethe::test {

TensorMap load_safetensors(const std::string& path) {
  const TensorFile file(path);
  TensorMap tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.read(name));
  return tensors;
}

TensorMap load_unit(const std::string& name) {
  TensorMap tensors =
      load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/" + name + ".safetensors");
  for (auto& [key, value] : tensors)
    if (value.is_floating_point()) value = value.to(at::kDouble);
  return tensors;
}

}  // namespace lethe::test
