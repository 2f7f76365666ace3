#pragma once

#include "lethe/base/documents.h"
#include "lethe/core/node.h"
#include "lethe/ops/compressor.h"

// Inside lethe/ops only: the compressor's kernel on checked tensors, float32 on the CPU.
namespace lethe::ops {

at::Tensor fused_compressor(const CompressorInputs& in,
                            const Documents& documents,
                            const CompressorRule& rule);

/// Takes and returns what compressor_gradient does; always computes all four gradients.
Tensors fused_compressor_gradient(const BackwardInput& in,
                                  const Documents& documents,
                                  const CompressorRule& rule);

}  // namespace lethe::ops
