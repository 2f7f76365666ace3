#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lethe/config/json_fields_impl.h"
#include "lethe/config/model_config.h"

namespace lethe {

/// The parts of parse_hub_config, each filling its fields of `config`. num_layers, num_mtp and
/// head_dim must have been read.
void read_ratios(JsonFields& fields, ModelConfig& config, std::vector<std::string>& messages);
void read_hash_layers(JsonFields& fields, ModelConfig& config);
void read_rope(JsonFields& fields, ModelConfig& config, std::vector<std::string>& messages);

/// transformers' names of the attention kinds.
inline constexpr const char* kSlidingName = "sliding_attention";
inline constexpr const char* kCsaName = "compressed_sparse_attention";
inline constexpr const char* kHcaName = "heavily_compressed_attention";
/// The only HCA ratio that the hub's compress_ratios spelling has a name for.
inline constexpr int64_t kReleaseHcaRatio = 128;

}  // namespace lethe
