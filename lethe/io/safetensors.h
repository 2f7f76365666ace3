#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/io/safetensors_header.h"

namespace lethe {

/// A safetensors file mapped read-only; no tensor's bytes are touched before they are asked for.
/// Throws CheckpointError as parse_safetensors_header, and [E-ST-OPEN] when the file cannot be
/// mapped. Thread-safe after construction.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  [[nodiscard]] const std::string& path() const;

  /// In the order of their bytes.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const;

  /// nullptr for a name that the file lacks.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// Like find, but a missing name is CheckpointError [E-ST-MISSING] with the nearest name.
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;

  /// The tensor's bytes, valid as long as this object. They may be unaligned: read them with memcpy
  /// or copy_elements, never through a cast pointer. CheckpointError [E-ST-CHANGED] if the file was
  /// cut or grown since it was opened (reading a mapped page beyond its end would kill the
  /// process).
  [[nodiscard]] std::span<const std::byte> bytes(const StoredTensor& tensor) const;

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

/// The elements of unaligned bytes. T must be as wide as the stored type; bytes.size() a multiple
/// of it.
template <class T>
[[nodiscard]] std::vector<T> copy_elements(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

/// A tensor to be written: the data is only read, and only while write_safetensors runs.
struct TensorToStore {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<int64_t> shape;  // logical sizes
  std::span<const std::byte> data;
};

/// Writes a complete file or, on any error, leaves `target` as it was (AtomicFile). Same tensors
/// and metadata give the same bytes, whatever their order. Tensors stream from their spans; nothing
/// is copied. CheckpointError [E-ST-DUPLICATE], [E-ST-NAME], [E-ST-LENGTH] ... before anything is
/// created.
void write_safetensors(const std::filesystem::path& target,
                       std::span<const TensorToStore> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lethe
