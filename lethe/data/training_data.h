#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lethe/config/train_config.h"
#include "lethe/data/batches.h"
#include "lethe/data/data_position.h"

namespace lethe {

/// One part of the training data.
struct DataPart {
  std::string path;  // a text file or folder (byte tokens), or NAME of NAME.bin/.idx (Corpus::open)
  double weight = 1;  // > 0: its share of the samples relative to the other parts
};

struct DataSettings {
  std::vector<DataPart> parts;  // at least one
  double valid_fraction = 0;    // of every part, in [0, 1); see split_corpus
  int64_t seq_length = 0;       // tokens of a sequence
  int64_t sequences_per_batch = 1;
  int64_t valid_batches = 0;  // batches of the fixed validation set, >= 1 where valid_fraction > 0
  uint64_t seed = 0;          // of the order
  int64_t vocab_size = 0;     // ids must be below it
  LongDocuments long_documents = LongDocuments::Auto;
};

/// What there is to train on, for people and the run record.
struct DataFacts {
  int64_t train_tokens = 0;
  int64_t valid_tokens = 0;
  int64_t documents = 0;
  int64_t sequences = 0;              // of one epoch over every part
  int64_t dropped_tokens = 0;         // of training: an input of no sequence
  std::string unit;                   // "byte" or "token"
  std::string tokenizer_fingerprint;  // "" = data of other tools
  int64_t tokenizer_vocab_size = 0;   // 0 = data of other tools
  std::string tokenizer_json;         // file to copy into the model folder; "" = none
  // bigram_entropy of a single part of byte tokens: text, or a data set without a mask of up to
  // 2^26 tokens.
  std::optional<double> bigram_loss;
};

/// The stream of training batches, and the fixed validation batches.
///
/// Each sample (sequence) comes from the part that is furthest behind its weight: the largest
/// weight / sum * (n + 1) - taken after n samples, of equal ones the first. Each part runs through
/// its own sequences epoch by epoch, in an order shuffled by (seed, part, epoch). A batch may hold
/// the end of one epoch and the beginning of the next. The validation set takes, by the same blend
/// and unshuffled, the first valid_batches * sequences_per_batch sequences of the parts' ends, or
/// all when there are fewer. Held in memory: byte text, Sequences, and 4 bytes per sequence for the
/// order of the present epoch of every part; token files are mapped. Deterministic: a function of
/// data, settings and the number of the sample. Not thread-safe.
class TrainingData final {
 public:
  /// Throws ConfigError: a setting outside its range, byte tokens with a vocabulary below 256.
  /// DataError: files (Corpus::open), a part without a whole sequence or, by its NAME.json, without
  /// a token that counts, parts of two tokenizers, a document that is too long, a largest id
  /// (NAME.json) that the vocabulary does not have.
  explicit TrainingData(const DataSettings& settings);
  TrainingData(const TrainingData&) = delete;
  TrainingData& operator=(const TrainingData&) = delete;
  ~TrainingData();

  /// The next sequences_per_batch samples. DataError naming file, document and position of an id
  /// outside the vocabulary.
  Batch next();

  /// Where next() stands.
  [[nodiscard]] DataPosition position() const;

  /// Goes to a position that data and settings like these have given. CheckpointError naming
  /// everything that differs; the stream then stays where it was.
  void restore(const DataPosition& position);

  /// The last batch may be shorter; empty where valid_fraction = 0.
  [[nodiscard]] const std::vector<Batch>& valid_batches() const;

  [[nodiscard]] const DataFacts& facts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
