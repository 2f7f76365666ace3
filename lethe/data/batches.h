#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lethe/base/documents.h"
#include "lethe/data/corpus.h"

namespace lethe {

/// One microbatch, its sequences one after another in one row of T = sequences * seq_length tokens.
struct Batch {
  std::vector<int64_t> ids;     // [T], 0 .. vocabulary - 1
  std::vector<int64_t> labels;  // [T], the token after ids[i]; kIgnoredLabel at the end of a
                                // document, where the loss mask of that token is 0, and in
                                // what goes on of a packed document of a corpus with a mask
  std::vector<int32_t> cu_seqlens = {
      0};  // [N+1]; every sequence, and every document in one, is an entry

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(ids.size()); }

  bool operator==(const Batch&) const = default;
};

/// A range of a corpus cut into sequences of exactly seq_length tokens, none of which crosses a
/// document unless as an entry of its own (model spec 11). A document longer than seq_length gives
/// windows of seq_length + 1 tokens (the last one is only a label and begins the next window).
/// Shorter documents, and the ends that windows leave, are packed in order into shared sequences;
/// one that does not fit goes on in the next sequence; where the corpus has a mask, what goes on
/// there has no labels, since a response would be learnt without its prompt. A single token has
/// nothing to predict and is dropped, and so is the last packed sequence when it is not full. The
/// windows come first, then the packed sequences. Held in memory: 16 bytes per document that has
/// windows, 16 bytes per packed piece (about one per document) and 8 bytes per packed sequence; no
/// tokens.
class Sequences {
 public:
  /// corpus must outlive this object; seq_length >= 1 (ConfigError).
  /// Throws DataError when there is not one whole sequence.
  Sequences(const Corpus& corpus, TokenRange within, int64_t seq_length);

  [[nodiscard]] int64_t count() const { return num_windows() + num_packed(); }

  [[nodiscard]] int64_t num_windows() const { return num_windows_; }

  [[nodiscard]] int64_t num_packed() const {
    return static_cast<int64_t>(packed_starts_.size()) - 1;
  }

  [[nodiscard]] int64_t seq_length() const { return seq_length_; }

  /// Tokens that are an input of no sequence: dropped single tokens and the unfilled last sequence.
  [[nodiscard]] int64_t unused_tokens() const { return unused_tokens_; }

  /// Appends sequence `index` in [0, count()) to the batch. DataError naming the place of an id
  /// outside [0, vocab_size).
  void append_to(Batch& batch, int64_t index, int64_t vocab_size) const;

 private:
  struct Windows {  // of one document
    int64_t begin;  // first token of the first window
    int64_t first;  // number of that window
  };

  struct Piece {
    int64_t begin;    // first token
    int32_t length;   // tokens
    bool has_next;    // the token behind the last one belongs to the same document
    bool unlabelled;  // no token of it is a label
  };

  struct Packer {
    int64_t room;  // of the packed sequence that is being filled
  };

  TokenRange cut(TokenRange document);
  void pack(TokenRange rest, Packer& packer);
  void append_piece(Batch& batch, const Piece& piece, int64_t vocab_size) const;
  void mask_labels(Batch& batch, size_t first, TokenRange tokens) const;

  const Corpus* corpus_;
  int64_t seq_length_;
  int64_t num_windows_ = 0;
  std::vector<Windows> windows_;       // by document
  std::vector<Piece> packed_;          // pieces of all packed sequences
  std::vector<size_t> packed_starts_;  // first piece of each packed sequence, and the end
  int64_t unused_tokens_ = 0;
};

}  // namespace lethe
