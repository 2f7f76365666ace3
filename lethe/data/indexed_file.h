#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lethe/data/index_layout.h"
#include "lethe/data/token_range.h"
#include "lethe/io/mapped_file.h"

namespace lethe {

/// Tokens on disk as Megatron-style tools write them: NAME.bin + NAME.idx (IndexLayout), and
/// optionally the loss mask NAME.mask.bin + NAME.mask.idx: uint8, the same lengths and documents, 1
/// = the token's loss is counted, 0 = it is not; absent = all are counted. Everything is
/// memory-mapped and read in place. Thread-safe after construction.
class IndexedFile {
 public:
  /// name: the path without ".bin"/".idx". Throws DataError: a missing file of a pair, a rule of
  /// IndexLayout, a mask of another shape.
  explicit IndexedFile(const std::string& name);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const IndexLayout& layout() const { return tokens_.layout; }

  [[nodiscard]] bool has_mask() const { return mask_.has_value(); }

  /// Tokens of document d in [0, layout().num_documents()); may be empty.
  [[nodiscard]] TokenRange document(int64_t d) const;

  /// Copies tokens [begin, begin + out.size()) as they are stored, whatever their values. DataError
  /// when the .bin was cut since it was opened.
  void read(int64_t begin, std::span<int64_t> out) const;

  /// The mask of the same tokens, 0 or 1; all 1 without a mask. DataError for any other value.
  void read_mask(int64_t begin, std::span<uint8_t> out) const;

  /// SHA-256 over both indexes and over the .bin files: each as a whole up to 64 MiB, else its size
  /// and 1024 evenly spaced blocks of 64 KiB, the first and the last included.
  [[nodiscard]] std::string fingerprint() const;

 private:
  struct Pair {
    explicit Pair(const std::string& name);
    MappedFile index;
    MappedFile bin;
    IndexLayout layout;
  };

  void check_mask() const;

  std::string name_;
  Pair tokens_;
  std::optional<Pair> mask_;
};

}  // namespace lethe
