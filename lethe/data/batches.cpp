#include "lethe/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "lethe/base/error.h"
#include "lethe/base/random.h"

namespace lethe {
namespace {

void check_batch_size(const Sequences& sequences, int64_t sequences_per_batch) {
  const int64_t most = std::numeric_limits<int32_t>::max() / sequences.seq_length();
  LETHE_CHECK(
      ConfigError,
      sequences_per_batch >= 1 && sequences_per_batch <= most,
      "data: a microbatch must have 1 to {} sequences of {} tokens, got {}; correct the setting",
      most,
      sequences.seq_length(),
      sequences_per_batch);
}

}  // namespace

Sequences::Sequences(const ByteText& text, std::span<const TextRange> documents, int64_t seq_length)
    : bytes_(text.bytes), seq_length_(seq_length), packed_starts_{0} {
  LETHE_CHECK(ConfigError,
              seq_length >= 1 && seq_length <= std::numeric_limits<int32_t>::max(),
              "data: the sequence length must be >= 1 and < 2^31, got {}; correct the setting",
              seq_length);
  std::vector<Piece> pieces;
  for (const TextRange& document : documents) cut(document, pieces);
  pack(pieces);
  LETHE_CHECK(
      DataError,
      count() >= 1,
      "data: the text must fill one sequence of {} tokens, got {} bytes in {} documents, {} of "
      "them single bytes or beyond a full sequence; use more text or a shorter sequence",
      seq_length,
      total_size(documents),
      documents.size(),
      unused_tokens_);
}

void Sequences::cut(TextRange document, std::vector<Piece>& pieces) {
  for (; document.size() > seq_length_; document.begin += seq_length_)
    windows_.push_back(document.begin);
  // A window's last label is the only byte left when the document ends with it.
  if (document.size() > 1) pieces.push_back({document.begin, document.size(), false});
  if (document.size() == 1) ++unused_tokens_;
}

void Sequences::pack(const std::vector<Piece>& pieces) {
  int64_t room = seq_length_;
  for (Piece piece : pieces) {
    while (piece.length > room) {
      packed_.push_back({piece.begin, room, true});
      packed_starts_.push_back(packed_.size());
      piece = {piece.begin + room, piece.length - room, false};
      room = seq_length_;
    }
    if (piece.length == 1) {  // what a full sequence left of a document
      ++unused_tokens_;
      continue;
    }
    packed_.push_back(piece);
    room -= piece.length;
    if (room > 0) continue;
    packed_starts_.push_back(packed_.size());
    room = seq_length_;
  }
  unused_tokens_ += seq_length_ - room;
  packed_.resize(packed_starts_.back());
}

void Sequences::append_piece(Batch& batch, const Piece& piece) const {
  for (int64_t i = 0; i < piece.length; ++i) {
    const auto at = static_cast<size_t>(piece.begin + i);
    const bool has_label = piece.has_next || i + 1 < piece.length;
    batch.ids.push_back(bytes_[at]);
    batch.labels.push_back(has_label ? bytes_[at + 1] : kIgnoredLabel);
  }
  batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
}

void Sequences::append_to(Batch& batch, int64_t index) const {
  if (index < 0 || index >= count())
    fail_internal(fmt::format("Sequences: index must be in [0, {}), got {}", count(), index));
  if (index < num_windows())
    return append_piece(batch, {windows_[static_cast<size_t>(index)], seq_length_, true});
  const auto row = static_cast<size_t>(index - num_windows());
  for (size_t p = packed_starts_[row]; p < packed_starts_[row + 1]; ++p)
    append_piece(batch, packed_[p]);
}

ShuffledBatches::ShuffledBatches(Sequences sequences, int64_t sequences_per_batch, uint64_t seed)
    : sequences_(std::move(sequences)), sequences_per_batch_(sequences_per_batch), seed_(seed) {
  check_batch_size(sequences_, sequences_per_batch);
}

int64_t ShuffledBatches::shuffled(int64_t epoch, int64_t position) {
  if (epoch != order_epoch_) {
    order_.resize(static_cast<size_t>(sequences_.count()));
    std::iota(order_.begin(), order_.end(), 0);
    Random(stream_key(seed_, fmt::format("epoch {}", epoch))).shuffle(std::span(order_));
    order_epoch_ = epoch;
  }
  return order_[static_cast<size_t>(position)];
}

Batch ShuffledBatches::at(int64_t step) {
  if (step < 0) fail_internal(fmt::format("ShuffledBatches: step must be >= 0, got {}", step));
  Batch batch;
  const int64_t first = step * sequences_per_batch_;
  for (int64_t i = first; i < first + sequences_per_batch_; ++i)
    sequences_.append_to(batch, shuffled(i / sequences_.count(), i % sequences_.count()));
  return batch;
}

std::vector<Batch> fixed_batches(const Sequences& sequences,
                                 int64_t sequences_per_batch,
                                 int64_t max_sequences) {
  check_batch_size(sequences, sequences_per_batch);
  LETHE_CHECK(ConfigError,
              max_sequences >= 1,
              "data: the number of validation sequences must be >= 1, got {}; correct the setting",
              max_sequences);
  std::vector<Batch> batches;
  const int64_t count = std::min(max_sequences, sequences.count());
  for (int64_t first = 0; first < count; first += sequences_per_batch) {
    Batch& batch = batches.emplace_back();
    for (int64_t i = first; i < std::min(first + sequences_per_batch, count); ++i)
      sequences.append_to(batch, i);
  }
  return batches;
}

}  // namespace lethe
