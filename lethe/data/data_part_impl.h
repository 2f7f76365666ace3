#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lethe/data/split.h"
#include "lethe/data/training_data.h"

namespace lethe::detail {

/// One part of the training data, opened, checked and cut into sequences. Does not move: the
/// sequences point to the corpus.
struct LoadedPart {
  /// DataError as TrainingData's constructor, for what concerns this part alone.
  LoadedPart(const DataSettings& settings, size_t index);
  LoadedPart(const LoadedPart&) = delete;
  LoadedPart& operator=(const LoadedPart&) = delete;

  /// The sequence that the part's sample `number` >= 0 is.
  int64_t shuffled(int64_t number);

  Corpus corpus;
  CorpusSplit split;
  Sequences train;
  std::optional<Sequences> valid;
  std::string fingerprint;
  std::string tokenizer_fingerprint;  // "" = unknown

 private:
  uint64_t seed_;
  std::string stream_;  // name of the part's random numbers, without the epoch
  std::vector<uint32_t> order_;
  int64_t order_epoch_ = -1;
};

/// What must hold between the parts and the model: one tokenizer, ids below vocab_size as far as is
/// known without reading the tokens. ConfigError, DataError.
void check_together(std::span<const std::unique_ptr<LoadedPart>> parts, int64_t vocab_size);

}  // namespace lethe::detail
