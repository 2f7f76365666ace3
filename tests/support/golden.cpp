#include "support/golden.h"

#include <cstring>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace lethe::test {
namespace {

at::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, at::ScalarType> known{{"F32", at::kFloat},
                                                           {"F64", at::kDouble},
                                                           {"I32", at::kInt},
                                                           {"I64", at::kLong},
                                                           {"U8", at::kByte}};
  const auto found = known.find(name);
  if (found == known.end())
    throw std::runtime_error("golden data: dtype " + name + " is not used by the sets");
  return found->second;
}

}  // namespace

std::map<std::string, at::Tensor> load_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("golden data: cannot open " + path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    const at::Tensor t =
        at::empty(shape, at::TensorOptions().dtype(dtype_of(entry.at("dtype").get<std::string>())));
    const auto begin = 8 + header_bytes + entry.at("data_offsets").at(0).get<uint64_t>();
    if (begin + t.nbytes() > bytes.size())
      throw std::runtime_error("golden data: " + path + " is cut short");
    std::memcpy(t.mutable_data_ptr(), bytes.data() + begin, t.nbytes());
    tensors.emplace(name, t);
  }
  return tensors;
}

}  // namespace lethe::test
