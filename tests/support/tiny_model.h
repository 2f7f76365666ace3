#pragma once

#include <memory>
#include <vector>

#include "support/tiny_configs.h"

#include "lethe/model/deepseek_v4.h"

namespace lethe::test {

/// A model with every weight drawn away from its neutral value (norms near 1, alphas near 1, sinks,
/// ape and biases not 0), so that no rule is invisible.
std::unique_ptr<DeepseekV4> lively_model(const ModelConfig& config,
                                         ParamPlacement placement,
                                         uint64_t seed);

/// Random ids and their next-token labels for documents of these lengths.
MicroBatch random_batch(const ModelConfig& config,
                        const std::vector<int64_t>& lengths,
                        uint64_t seed);

/// The given ids instead.
MicroBatch batch_of(const ModelConfig& config,
                    const std::vector<int64_t>& ids,
                    const std::vector<int64_t>& lengths);

/// Token sums of every loss with factor 1; the KL over the selected slots.
LossFactors all_losses(const ModelConfig& config);

/// Gradients of all trained parameters after one backward of `total`, in store order; undefined =
/// none.
std::vector<at::Tensor> gradients(DeepseekV4& model,
                                  const MicroBatch& batch,
                                  const LossFactors& factors);

}  // namespace lethe::test
