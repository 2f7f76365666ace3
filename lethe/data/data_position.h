#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lethe {

/// Where training stands in its data: what a checkpoint holds (checkpoints 4.1). Counts global
/// samples (sequences), so it does not depend on how a batch is divided among microbatches or
/// ranks. Nothing is carried over by packing: sequences are a pure function of the data.
struct DataPosition {
  struct Part {
    std::string path;         // as the user gave it; for messages, a moved file is the same data
    std::string fingerprint;  // Corpus::fingerprint()
    double weight = 1;        // relative to the sum of all
    int64_t sequences = 0;    // of one epoch
    int64_t next_sample = 0;  // blend cursor: samples taken; epoch = next_sample / sequences
    bool operator==(const Part&) const = default;
  };

  uint64_t seed = 0;
  int64_t seq_length = 0;
  double valid_fraction = 0;
  int64_t next_sample = 0;  // global; the sum of the parts'
  std::vector<Part> parts;

  bool operator==(const DataPosition&) const = default;

  [[nodiscard]] std::string to_json() const;

  /// CheckpointError naming the field that is missing, of another type or without sense.
  static DataPosition from_json(std::string_view text);
};

}  // namespace lethe
