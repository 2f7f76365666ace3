#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "lethe/data/batches.h"
#include "lethe/model/deepseek_v4.h"

namespace lethe {

/// What a step that ended in NaN or Inf leaves for whoever looks for the reason, in a new folder:
///   error.txt           the message
///   batch.safetensors   per micro-batch m: m.ids, m.labels (int64 [T]), m.cu_seqlens (int32 [N+1])
///   parameters.jsonl    per parameter: {"name", "rms", "max_abs", "not_finite"} of its value and,
///                       as "grad", of the gradient if one has arrived
///   activations.jsonl   per micro-batch and intermediate of a forward over it, in order:
///                       {"micro_batch", "name", "rms", "max_abs", "not_finite"}
/// rms and max_abs are over the finite elements. Changes neither model nor gradients.
void write_failure_dump(const std::filesystem::path& folder,
                        const std::string& error,
                        std::span<const Batch> micro_batches,
                        const DeepseekV4& model,
                        const LossFactors& factors);

}  // namespace lethe
