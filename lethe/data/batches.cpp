#include "lethe/data/batches.h"

#include <algorithm>
#include <limits>

#include "lethe/base/error.h"

namespace lethe {

Sequences::Sequences(const Corpus& corpus, TokenRange within, int64_t seq_length)
    : corpus_(&corpus), seq_length_(seq_length), packed_starts_{0} {
  LETHE_CHECK(ConfigError,
              seq_length >= 1 && seq_length <= std::numeric_limits<int32_t>::max(),
              "data: the sequence length must be >= 1 and < 2^31, got {}; correct the setting",
              seq_length);
  int64_t documents = 0;
  Packer packer{.room = seq_length};
  corpus.for_each_document(within, [&](int64_t, TokenRange document) {
    ++documents;
    pack(cut(document), packer);
  });
  unused_tokens_ += seq_length - packer.room;
  packed_.resize(packed_starts_.back());
  packed_.shrink_to_fit();
  LETHE_CHECK(
      DataError,
      count() >= 1,
      "data: '{}' must fill one sequence of {} tokens, got {} tokens in {} documents, {} of "
      "them single tokens or beyond a full sequence; use more text or a shorter sequence",
      corpus.name(),
      seq_length,
      within.size(),
      documents,
      unused_tokens_);
}

TokenRange Sequences::cut(TokenRange document) {
  if (document.size() <= seq_length_) return document;
  windows_.push_back({document.begin, num_windows_});
  const int64_t windows = (document.size() - 1) / seq_length_;
  num_windows_ += windows;
  // A window's last label is the only token left when the document ends with it.
  document.begin += windows * seq_length_;
  return document;
}

void Sequences::pack(TokenRange rest, Packer& packer) {
  bool unlabelled = false;
  while (rest.size() > packer.room) {
    packed_.push_back({rest.begin, static_cast<int32_t>(packer.room), true, unlabelled});
    unlabelled = corpus_->has_mask();
    packed_starts_.push_back(packed_.size());
    rest.begin += packer.room;
    packer.room = seq_length_;
  }
  if (rest.size() == 1) {  // a single token, or what windows or a full sequence left of a document
    ++unused_tokens_;
    return;
  }
  packed_.push_back({rest.begin, static_cast<int32_t>(rest.size()), false, unlabelled});
  packer.room -= rest.size();
  if (packer.room > 0) return;
  packed_starts_.push_back(packed_.size());
  packer.room = seq_length_;
}

void Sequences::append_piece(Batch& batch, const Piece& piece, int64_t vocab_size) const {
  const auto length = static_cast<size_t>(piece.length), labels = length - (piece.has_next ? 0 : 1);
  const size_t begin = batch.ids.size();
  // The label of the last token is read behind the ids and then taken off them.
  batch.ids.resize(begin + labels + 1);
  const std::span<int64_t> ids = std::span(batch.ids).subspan(begin);
  corpus_->read(piece.begin, ids);
  for (size_t i = 0; i < ids.size(); ++i)
    LETHE_CHECK(
        DataError,
        ids[i] >= 0 && ids[i] < vocab_size,
        "{}: {}: a token id must be in [0, {}), the vocabulary, got {}; prepare the data with "
        "the model's tokenizer, or give the model a vocabulary of at least {}",
        corpus_->name(),
        corpus_->place_of(piece.begin + static_cast<int64_t>(i)),
        vocab_size,
        ids[i],
        ids[i] + 1);
  batch.labels.insert(
      batch.labels.end(), ids.begin() + 1, ids.begin() + 1 + static_cast<int64_t>(labels));
  if (piece.unlabelled)
    std::fill(
        batch.labels.begin() + static_cast<int64_t>(begin), batch.labels.end(), kIgnoredLabel);
  else if (corpus_->has_mask())
    mask_labels(batch, begin, {piece.begin + 1, piece.begin + 1 + static_cast<int64_t>(labels)});
  if (!piece.has_next) batch.labels.push_back(kIgnoredLabel);
  batch.ids.resize(begin + length);
  batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
}

void Sequences::mask_labels(Batch& batch, size_t first, TokenRange tokens) const {
  std::vector<uint8_t> counted(static_cast<size_t>(tokens.size()));
  corpus_->read_mask(tokens.begin, counted);
  for (size_t i = 0; i < counted.size(); ++i)
    if (counted[i] == 0) batch.labels[first + i] = kIgnoredLabel;
}

void Sequences::append_to(Batch& batch, int64_t index, int64_t vocab_size) const {
  if (index < 0 || index >= count())
    fail_internal(fmt::format("Sequences: index must be in [0, {}), got {}", count(), index));
  if (index < num_windows()) {
    const auto after =
        std::upper_bound(windows_.begin(), windows_.end(), index, [](int64_t i, const Windows& w) {
          return i < w.first;
        });
    const Windows& document = *(after - 1);
    const int64_t begin = document.begin + (index - document.first) * seq_length_;
    return append_piece(batch, {begin, static_cast<int32_t>(seq_length_), true, false}, vocab_size);
  }
  const auto row = static_cast<size_t>(index - num_windows());
  for (size_t p = packed_starts_[row]; p < packed_starts_[row + 1]; ++p)
    append_piece(batch, packed_[p], vocab_size);
}

}  // namespace lethe
