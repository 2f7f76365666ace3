#include "lethe/train/generate.h"

#include <algorithm>
#include <cmath>

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/data/byte_text.h"

namespace lethe {
namespace {

// Draws from softmax(logits / temperature) by its cumulative sum in index order.
int64_t draw(const std::vector<double>& logits, double temperature, Random& random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return best - logits.begin();
  std::vector<double> mass(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    total += mass[i] = std::exp((logits[i] - *best) / temperature);
  double left = random.uniform() * total;
  for (size_t i = 0; i < mass.size(); ++i)
    if ((left -= mass[i]) < 0) return static_cast<int64_t>(i);
  return best - logits.begin();  // rounding left a rest of the last interval
}

std::vector<double> next_logits(const DeepseekV4& model, const std::vector<int64_t>& tokens) {
  const std::vector<int64_t> labels(tokens.size(), kIgnoredLabel);
  const std::vector<int32_t> cu{0, static_cast<int32_t>(tokens.size())};
  const MicroBatch batch = make_micro_batch(tokens, labels, cu, model.config().ratios);
  const at::Tensor hidden = model.hidden(batch);
  const at::Tensor logits =
      model.logits(hidden.narrow(0, batch.tokens() - 1, 1)).to(at::kDouble).contiguous();
  const double* values = logits.const_data_ptr<double>();
  return {values, values + kByteVocab};
}

}  // namespace

void generate(const DeepseekV4& model,
              const GenerateConfig& config,
              const std::function<void(char)>& emit) {
  LETHE_CHECK(ConfigError,
              model.config().vocab_size == kByteVocab,
              "generate: the vocabulary must be the {} bytes, got {} tokens; use a model that was "
              "trained on bytes",
              kByteVocab,
              model.config().vocab_size);
  LETHE_CHECK(ConfigError,
              !config.prompt.empty(),
              "--prompt: must have at least one byte, got none; leave the flag out for a new line");
  const at::NoGradGuard no_grad;
  Random random(static_cast<uint64_t>(config.seed));
  std::vector<int64_t> tokens;
  for (const char c : config.prompt) tokens.push_back(static_cast<unsigned char>(c));
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    tokens.push_back(draw(next_logits(model, tokens), config.temperature, random));
    emit(static_cast<char>(tokens.back()));
  }
}

}  // namespace lethe
