#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lethe/config/contract.h"
#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"

namespace at {
class Tensor;
}

namespace lethe {

class TensorFile;

/// Fills every row of `store` from an unquantised hub file (F32, BF16, F16, F64; tables I64 or
/// I32). The file must hold exactly the tensors of the contract: a missing, unexpected or wrongly
/// shaped one is a CheckpointError [E-MISSING], [E-UNEXPECTED], [E-SHAPE] naming it, and every
/// element is proven to be written exactly once [E-UNCOVERED] (spec 6 2.5). fp32-kept rows never
/// pass through a smaller type.
void import_hub_weights(const TensorFile& file, const ModelConfig& config, ParamStore& store);

/// The value of internal tensor i, for example its data or its gradient; undefined = absent.
using InternalTensor = std::function<at::Tensor(size_t i)>;

/// Puts one hub tensor together from the internal tensors that hold its rows. Undefined when any of
/// them is. Works on anything of the internal shapes: values, gradients, moments.
at::Tensor assemble_hub_tensor(const DiskTensor& tensor, const InternalTensor& internal);

/// Writes all tensors of the model under hub names to one safetensors file, atomically: floats as
/// float32, tables as I64 (spec 6 3.1, profile fp32).
void export_hub_weights(const ModelConfig& config,
                        const ParamStore& store,
                        const std::string& path);

}  // namespace lethe
