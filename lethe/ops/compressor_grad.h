#pragma once

#include "lethe/base/documents.h"
#include "lethe/core/node.h"
#include "lethe/ops/compressor.h"

// Inside lethe/ops only.
namespace lethe::ops {

/// The gradient of the compressor in ATen, any dtype. in: grads {d_slots}, saved {kv, gate, ape,
/// norm_weight, slot_positions, inv_freq}. Returns one gradient for each of these, none for the
/// last two.
Tensors compressor_gradient(const BackwardInput& in,
                            const Documents& documents,
                            const CompressorRule& rule);

}  // namespace lethe::ops
