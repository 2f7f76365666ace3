#include "lethe/train/model_folder.h"

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/base/log.h"
#include "lethe/checkpoint/hub_weights.h"
#include "lethe/checkpoint/tensor_file.h"
#include "lethe/config/hub_config.h"
#include "lethe/config/validate.h"
#include "lethe/data/byte_text.h"
#include "lethe/io/atomic_file.h"

namespace lethe {

namespace fs = std::filesystem;

std::string write_model_folder(const DeepseekV4& model,
                               const fs::path& folder,
                               const std::string& hub_kept,
                               const std::string& tokenizer) {
  fs::path unfinished = folder;
  unfinished += ".tmp";
  try {
    fs::remove_all(unfinished);
    ensure_writable_folder(unfinished.string());
    export_hub_weights(model.config(), model.params(), (unfinished / "model.safetensors").string());
    write_file_atomically((unfinished / "config.json").string(),
                          write_hub_config(model.config(), hub_kept));
    if (!tokenizer.empty()) write_file_atomically(unfinished / "tokenizer.json", tokenizer);
    fs::remove_all(folder);
    fs::rename(unfinished, folder);
  } catch (const fs::filesystem_error& error) {
    fail<DataError>("{}: the model's folder must be writable, got '{}'; check its permissions",
                    folder.string(),
                    error.what());
  }
  return folder.string();
}

Tokenizer read_tokenizer(const fs::path& folder,
                         const std::string& given,
                         const ModelConfig& config) {
  const fs::path own = folder / "tokenizer.json";
  const bool from_file = !given.empty() || fs::exists(own);
  LETHE_CHECK(ConfigError,
              from_file || config.vocab_size == kByteVocab,
              "--tokenizer: must name the tokenizer.json of this model, got none and {} tokens, "
              "which are not bytes; the hub's folder of the model has the file",
              config.vocab_size);
  Tokenizer tokenizer =
      from_file ? Tokenizer::from_file(given.empty() ? own : fs::path(given)) : Tokenizer::bytes();
  LETHE_CHECK(
      ConfigError,
      tokenizer.vocab_size() <= config.vocab_size,
      "--tokenizer: must have at most the model's {} tokens, got {}; is it the tokenizer of "
      "another model?",
      config.vocab_size,
      tokenizer.vocab_size());
  return tokenizer;
}

ModelConfig read_model_config(const fs::path& folder) {
  const std::string path = (folder / "config.json").string();
  const HubConfig hub = parse_hub_config(read_text_file(path), path);
  for (const std::string& message : hub.messages) log_info("{}: {}", path, message);
  if (!hub.kept_keys.empty())
    log_info("{}: keys without a meaning here, kept: {}", path, fmt::join(hub.kept_keys, ", "));
  validate(hub.model, path);
  return hub.model;
}

std::unique_ptr<DeepseekV4> read_model_folder(const fs::path& folder,
                                              const std::string& weights_file,
                                              ParamPlacement placement) {
  ModelConfig config = read_model_config(folder);
  const TensorFile weights((folder / weights_file).string());
  const auto names = weights.names();
  const bool has_mtp = std::any_of(
      names.begin(), names.end(), [](const std::string& n) { return n.starts_with("mtp."); });
  if (config.num_mtp > 0 && !has_mtp) {
    log_info("{}: no mtp.* tensors, read as a model without MTP blocks", weights.path());
    config.ratios.resize(static_cast<size_t>(config.num_layers));
    config.num_mtp = 0;
  }
  auto model = std::make_unique<DeepseekV4>(config, placement);
  import_hub_weights(weights, config, model->params());
  return model;
}

}  // namespace lethe
