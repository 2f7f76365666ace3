#include "lethe/train/generate.h"

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/data/sampling.h"

namespace lethe {
namespace {

// Logits of the token behind `tokens`, of the first num_tokens rows of the vocabulary.
std::vector<double> next_logits(const DeepseekV4& model,
                                const std::vector<int64_t>& tokens,
                                int64_t num_tokens) {
  const std::vector<int64_t> labels(tokens.size(), kIgnoredLabel);
  const std::vector<int32_t> cu{0, static_cast<int32_t>(tokens.size())};
  const MicroBatch batch = make_micro_batch(tokens, labels, cu, model.config().ratios);
  const at::Tensor hidden = model.hidden(batch);
  const at::Tensor logits =
      model.logits(hidden.narrow(0, batch.tokens() - 1, 1)).to(at::kDouble).contiguous();
  const double* values = logits.const_data_ptr<double>();
  return {values, values + num_tokens};
}

}  // namespace

void generate(const DeepseekV4& model,
              const Tokenizer& tokenizer,
              const GenerateConfig& config,
              const std::function<void(std::string_view)>& emit) {
  std::vector<int32_t> prompt;
  tokenizer.encode(config.prompt, prompt);
  LETHE_CHECK(
      ConfigError,
      !prompt.empty(),
      "--prompt: must have at least one token, got none; leave the flag out for a new line");
  const int64_t length = std::ssize(prompt) + config.max_new_tokens;
  LETHE_CHECK(
      ConfigError,
      length <= model.config().max_positions,
      "--max-new-tokens: prompt and new tokens must be at most the model's {} positions, got "
      "{} + {}; generate fewer",
      model.config().max_positions,
      prompt.size(),
      config.max_new_tokens);
  const SamplingSettings sampling{
      .temperature = config.temperature, .top_p = config.top_p, .top_k = config.top_k};
  check(sampling);
  const at::NoGradGuard no_grad;
  Random random(static_cast<uint64_t>(config.seed));
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    tokens.push_back(sample(next_logits(model, tokens, tokenizer.vocab_size()), sampling, random));
    emit(tokenizer.token_bytes(static_cast<int32_t>(tokens.back())));
  }
}

}  // namespace lethe
