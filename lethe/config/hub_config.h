#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lethe/config/model_config.h"

namespace lethe {

/// A hub config.json, read.
struct HubConfig {
  ModelConfig model;
  std::string kept = "{}";  // JSON object: keys without a meaning here, verbatim and in order
  std::vector<std::string> kept_keys;  // their names, for one line at load
  std::vector<std::string> messages;   // what was normalised, one sentence each
};

/// Reads config.json text in either spelling (model spec 1.1-1.2, 6-checkpoints 2.8):
/// compress_ratios or layer_types + compress_rates, rope_scaling or rope_parameters (flat or {main,
/// compress}), DeepSeek's ModelArgs names. Keys given twice in different spellings must agree.
/// Fields that no hub key carries (clamp_shared_expert, indexer_hadamard, init_alpha) are read from
/// the object "lethe" if present. where: how errors call the file. Does not apply the rules among
/// fields: call validate(). Throws one ConfigError with a line per problem: missing mandatory key
/// (and what it decides), wrong type, negative or fractional value, disagreement, a fixed field
/// with another value.
[[nodiscard]] HubConfig parse_hub_config(std::string_view text, std::string_view where);

/// config.json text for weights stored as `storage_dtype` without quantisation: the official
/// spelling, plus layer_types and compress_rates where transformers needs them (an HCA ratio other
/// than 128). Keys of `kept` are appended unless they describe the storage of the weights that were
/// read. parse_hub_config(write_hub_config(c)).model == c for every valid c.
[[nodiscard]] std::string write_hub_config(const ModelConfig& config,
                                           std::string_view kept = "{}",
                                           std::string_view storage_dtype = "float32");

}  // namespace lethe
