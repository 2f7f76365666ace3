#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lethe/io/dtype.h"

namespace lethe {

/// One tensor of a safetensors file: row-major, little-endian, without gaps or strides.
struct StoredTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<int64_t>
      shape;          // logical: F4 counts elements, not bytes; rank 0 and zero sizes are legal
  int64_t begin = 0;  // bytes from the start of the file, not of the data region
  int64_t num_bytes = 0;
};

/// Everything a safetensors file says before its data (spec 6 2.2).
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;            // in the order of their bytes
  std::map<std::string, std::string> metadata;  // __metadata__
  int64_t data_begin = 0;                       // bytes: 8 + the header's length
};

/// Header lengths above this are refused before anything is allocated.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Reads and proves the header of a file of `file_bytes` bytes, of which `front` holds at least the
/// header. After it returned, every tensor's range lies inside the file, the ranges cover the data
/// region exactly once, and each length equals product(shape) * bits / 8. A tensor's begin may be
/// unaligned. path    as shown in errors Throws CheckpointError "PATH: byte OFFSET [E-ST-...]:
/// ...": one rule per kind of damage, each with its case in tests/io/safetensors_header_test.cpp.
/// Deterministic.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front,
                                                         uint64_t file_bytes,
                                                         const std::string& path);

/// Lays the tensors out in file order (descending dtype rank, then name) and gives each its begin
/// and num_bytes; data_begin is a multiple of 8, so that every tensor is aligned to its element.
/// Throws CheckpointError as above for duplicate or reserved names, negative or overflowing shapes.
[[nodiscard]] SafetensorsHeader lay_out_safetensors(std::vector<StoredTensor> tensors,
                                                    std::map<std::string, std::string> metadata,
                                                    const std::string& path);

/// The first data_begin bytes of the file that lay_out_safetensors described.
[[nodiscard]] std::string safetensors_header_bytes(const SafetensorsHeader& header,
                                                   const std::string& path);

}  // namespace lethe
