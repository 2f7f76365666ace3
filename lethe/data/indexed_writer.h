#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lethe/data/index_layout.h"

namespace lethe {

/// How far an IndexedWriter has come: what a later writer needs to go on.
struct IndexedMark {
  int64_t num_tokens = 0;     // in .bin
  int64_t num_sequences = 0;  // finished ones
  int64_t num_documents = 0;  // finished ones
  int64_t open_tokens = 0;    // of the sequence that is being written
  int64_t masked_tokens = 0;  // with mask 0

  bool operator==(const IndexedMark&) const = default;
};

/// What an IndexedWriter makes.
struct IndexedTarget {
  std::string name;  // path without ".bin"/".idx"
  TokenDtype dtype = TokenDtype::U8;
  bool with_mask = false;  // a loss mask is recorded
};

/// Writes NAME.bin/.idx (and the mask's pair) document by document with a fixed amount of memory.
/// The files grow as NAME.bin.part, NAME.mask.bin.part and NAME.lengths.part (4 bytes per sequence)
/// and get their names by rename in the end, so that NAME.idx never describes anything unfinished.
/// A document is one sequence; beyond 2^30 tokens it goes on in further sequences of the same
/// document. Errors of the system are DataError. Not thread-safe; a second writer of the same NAME
/// is refused while the first lives, in any process (DataError).
class IndexedWriter {
 public:
  /// A fresh one; what an earlier writer left unfinished is overwritten.
  explicit IndexedWriter(const IndexedTarget& target);

  /// Goes on from a mark that sync() gave, dropping what was written after it. DataError when the
  /// unfinished files are shorter than the mark says.
  IndexedWriter(const IndexedTarget& target, const IndexedMark& mark);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  /// Appends tokens to the open document. counted: their mask. ids must fit the dtype
  /// (InternalError).
  void append(std::span<const int32_t> tokens, bool counted = true);

  /// Ends the open document; one without tokens leaves no trace.
  void end_document();

  /// How far it has come, on the device or not.
  [[nodiscard]] const IndexedMark& mark() const;

  /// Everything appended so far is on the device when this returns.
  IndexedMark sync();

  /// Writes the indexes beside the .part files, no document being open, and gives the renames that
  /// publish the pair in their order, NAME.idx last. keep_mask = false drops a mask that marks
  /// nothing. The files are on the device; the writer accepts nothing more.
  struct Rename {
    std::string from, to;
    bool operator==(const Rename&) const = default;
  };

  std::vector<Rename> finish(bool keep_mask);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe
