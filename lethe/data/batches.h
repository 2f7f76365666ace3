#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lethe/base/documents.h"
#include "lethe/data/byte_text.h"

namespace lethe {

/// One microbatch, its sequences one after another in one row of T = sequences * seq_length tokens.
struct Batch {
  std::vector<int64_t> ids;  // [T], 0 .. 255
  std::vector<int64_t>
      labels;  // [T], the token after ids[i]; kIgnoredLabel at the end of a document
  std::vector<int32_t> cu_seqlens = {
      0};  // [N+1]; every sequence, and every document in one, is an entry

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(ids.size()); }

  bool operator==(const Batch&) const = default;
};

/// A text cut into sequences of exactly seq_length tokens, none of which crosses a document unless
/// as an entry of its own (model spec 11). A document longer than seq_length gives windows of
/// seq_length + 1 bytes (the last byte is only a label and begins the next window). Shorter
/// documents, and the ends that windows leave, are packed in order into shared sequences; one that
/// does not fit goes on in the next sequence. A single byte has nothing to predict and is dropped,
/// and so is the last packed sequence when it is not full. The windows come first, then the packed
/// sequences.
class Sequences {
 public:
  /// text must outlive this object; documents: ranges of it; seq_length >= 1 (ConfigError).
  /// Throws DataError when there is not one whole sequence.
  Sequences(const ByteText& text, std::span<const TextRange> documents, int64_t seq_length);

  [[nodiscard]] int64_t count() const { return num_windows() + num_packed(); }

  [[nodiscard]] int64_t num_windows() const { return static_cast<int64_t>(windows_.size()); }

  [[nodiscard]] int64_t num_packed() const {
    return static_cast<int64_t>(packed_starts_.size()) - 1;
  }

  [[nodiscard]] int64_t seq_length() const { return seq_length_; }

  /// Tokens that are an input of no sequence: dropped single bytes and the unfilled last sequence.
  [[nodiscard]] int64_t unused_tokens() const { return unused_tokens_; }

  /// Appends sequence `index` in [0, count()) to the batch.
  void append_to(Batch& batch, int64_t index) const;

 private:
  struct Piece {
    int64_t begin;   // first byte
    int64_t length;  // tokens
    bool has_next;   // the byte behind the last token belongs to the same document
  };

  void cut(TextRange document, std::vector<Piece>& pieces);
  void pack(const std::vector<Piece>& pieces);
  void append_piece(Batch& batch, const Piece& piece) const;

  std::span<const uint8_t> bytes_;
  int64_t seq_length_;
  std::vector<int64_t> windows_;       // first byte of each window
  std::vector<Piece> packed_;          // pieces of all packed sequences
  std::vector<size_t> packed_starts_;  // first piece of each packed sequence, and the end
  int64_t unused_tokens_ = 0;
};

/// Training microbatches: every epoch runs through all sequences once, in an order shuffled by
/// (seed, epoch). A batch may hold the end of one epoch and the beginning of the next.
class ShuffledBatches {
 public:
  /// sequences_per_batch >= 1, at most 2^31 - 1 tokens per batch (ConfigError).
  ShuffledBatches(Sequences sequences, int64_t sequences_per_batch, uint64_t seed);

  /// Microbatch `step` >= 0, a pure function of it: a resumed run needs no other state.
  Batch at(int64_t step);

  [[nodiscard]] const Sequences& sequences() const { return sequences_; }

 private:
  int64_t shuffled(int64_t epoch, int64_t position);

  Sequences sequences_;
  int64_t sequences_per_batch_;
  uint64_t seed_;
  std::vector<int64_t> order_;  // of epoch order_epoch_
  int64_t order_epoch_ = -1;
};

/// The first min(max_sequences, count) sequences in order, sequences_per_batch to a batch, the last
/// batch possibly shorter: a fixed set for validation. Both numbers >= 1 (ConfigError).
std::vector<Batch> fixed_batches(const Sequences& sequences,
                                 int64_t sequences_per_batch,
                                 int64_t max_sequences);

}  // namespace lethe
