#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe {

/// A safetensors file as tensors. Reads F64 F32 BF16 F16 I64 I32 U8 I8 into the dtype of the file.
class TensorFile final {
 public:
  /// Opens and checks the whole header (io/safetensors.h); CheckpointError names file, offset and
  /// reason.
  explicit TensorFile(const std::string& path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] std::vector<int64_t> shape(const std::string& name) const;

  /// A tensor of its own (the file may be closed). CheckpointError for an absent name or a dtype
  /// that holds no plain numbers.
  [[nodiscard]] at::Tensor read(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes named CPU tensors (float64, float32, bfloat16, int64, int32, uint8) to one safetensors
/// file, atomically: complete under its name, or not there.
void write_tensor_file(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace lethe
