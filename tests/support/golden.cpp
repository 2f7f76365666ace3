#include "support/golden.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"

namespace lethe::test {
namespace {

at::ScalarType dtype_of(const std::string& path, const std::string& name) {
  if (name == "F32") return at::kFloat;
  if (name == "F64") return at::kDouble;
  if (name == "I32") return at::kInt;
  if (name == "I64") return at::kLong;
  if (name == "U8") return at::kByte;
  fail<DataError>(
      "{}: dtype must be F32, F64, I32, I64 or U8, got {}; is it golden data?", path, name);
}

}  // namespace

TensorMap load_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  LETHE_CHECK(DataError,
              bytes.size() >= 8,
              "{}: must hold a safetensors header, got {} bytes; is the path right?",
              path,
              bytes.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  LETHE_CHECK(DataError,
              header_bytes <= bytes.size() - 8,
              "{}: header must fit the file of {} bytes, got {}; truncated?",
              path,
              bytes.size(),
              header_bytes);
  const std::string_view data = std::string_view(bytes).substr(8 + header_bytes);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  TensorMap tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::array<size_t, 2>>();
    const at::Tensor t = at::empty(shape, dtype_of(path, entry.at("dtype").get<std::string>()));
    LETHE_CHECK(DataError,
                offsets[1] <= data.size() && offsets[0] + t.nbytes() == offsets[1],
                "{}: {} must span {} bytes inside {}, got [{}, {}]; truncated?",
                path,
                name,
                t.nbytes(),
                data.size(),
                offsets[0],
                offsets[1]);
    std::memcpy(t.data_ptr(), data.data() + offsets[0], t.nbytes());
    tensors.emplace(name, t);
  }
  return tensors;
}

TensorMap load_unit(const std::string& name) {
  TensorMap tensors =
      load_safetensors(fmt::format("{}/unit/{}.safetensors", LETHE_GOLDEN_DIR, name));
  for (auto& [key, t] : tensors)
    if (t.is_floating_point()) t = t.to(at::kDouble);
  return tensors;
}

}  // namespace lethe::test
