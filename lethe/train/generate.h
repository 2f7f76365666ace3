#pragma once

#include <functional>
#include <string>

#include "lethe/config/run_config.h"
#include "lethe/model/deepseek_v4.h"

namespace lethe {

/// Samples bytes after the prompt, one full forward per byte, and hands each to `emit` as it comes.
/// temperature 0 takes the likeliest byte (on equal logits the smaller). The same seed gives the
/// same bytes for a fixed thread count. Throws ConfigError when the model's vocabulary is not bytes
/// or the prompt is empty.
void generate(const DeepseekV4& model,
              const GenerateConfig& config,
              const std::function<void(char)>& emit);

}  // namespace lethe
