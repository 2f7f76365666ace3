#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lethe/core/param_store.h"
#include "lethe/data/tokenizer.h"
#include "lethe/model/deepseek_v4.h"

namespace lethe {

/// Writes FOLDER/config.json and FOLDER/model.safetensors (hub names, float32): what `lethe
/// generate`, `lethe compare` and transformers read. The folder appears under its name only when it
/// is complete. Returns the folder.
/// hub_kept: JSON object of config.json keys without a meaning here, written back (spec 6 2.8).
/// tokenizer: content of FOLDER/tokenizer.json; empty = none (byte tokens). DataError where the
/// disk refuses.
std::string write_model_folder(const DeepseekV4& model,
                               const std::filesystem::path& folder,
                               const std::string& hub_kept,
                               const std::string& tokenizer);

/// The tokenizer of such a folder: `given` where it is not empty, else FOLDER/tokenizer.json, else
/// bytes for a vocabulary of 256. ConfigError: none of these, or more tokens than the model's
/// vocabulary.
Tokenizer read_tokenizer(const std::filesystem::path& folder,
                         const std::string& given,
                         const ModelConfig& config);

/// Reads config.json of a folder in either hub spelling and validates it. Logs keys without a
/// meaning here once.
ModelConfig read_model_config(const std::filesystem::path& folder);

/// A model from such a folder; weights_file: "model.safetensors" or "weights.safetensors".
/// CheckpointError when weights and config.json disagree.
std::unique_ptr<DeepseekV4> read_model_folder(const std::filesystem::path& folder,
                                              const std::string& weights_file,
                                              ParamPlacement placement);

}  // namespace lethe
