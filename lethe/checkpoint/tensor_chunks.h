#pragma once

#include <string>
#include <vector>

#include "lethe/io/safetensors.h"

namespace at {
class Tensor;
}

namespace lethe {

/// Key of a chunk that holds the whole of a tensor: "NAME|box=0:4,0:8", one OFFSET:SIZE per
/// dimension (spec 6 4.2).
[[nodiscard]] std::string chunk_key(const std::string& name, const std::vector<int64_t>& shape);

/// The whole tensor as one chunk. Its bytes are not copied: the tensor (contiguous, on the CPU)
/// must live and stay as it is as long as the result is used. InternalError otherwise.
[[nodiscard]] TensorToStore chunk_of(const std::string& name, const at::Tensor& tensor);

/// Copies the chunk of this name into the tensor (contiguous, on the CPU). CheckpointError
/// [E-CKPT-TENSOR]: absent, or of another shape or dtype.
void read_chunk(const SafetensorsFile& file, const std::string& name, const at::Tensor& tensor);

/// CheckpointError [E-CKPT-TENSOR] when the file has a chunk of a name that is not in `names`.
void expect_only(const SafetensorsFile& file, const std::vector<std::string>& names);

}  // namespace lethe
