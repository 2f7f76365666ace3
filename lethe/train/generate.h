#pragma once

#include <functional>
#include <string_view>

#include "lethe/config/run_config.h"
#include "lethe/data/tokenizer.h"
#include "lethe/model/deepseek_v4.h"

namespace lethe {

/// Samples tokens after the prompt (data/sampling.h), one full forward per token, and hands the
/// bytes of each to `emit` as they come; only tokens of the tokenizer are drawn. The same seed
/// gives the same text for a fixed thread count. Throws ConfigError when the prompt has no token or
/// a sampling setting is out of range.
void generate(const DeepseekV4& model,
              const Tokenizer& tokenizer,
              const GenerateConfig& config,
              const std::function<void(std::string_view)>& emit);

}  // namespace lethe
