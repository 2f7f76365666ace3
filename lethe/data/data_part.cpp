#include <limits>
#include <numeric>

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/data/data_part_impl.h"
#include "lethe/data/tokenizer.h"

namespace lethe::detail {
namespace {

void check_long_documents(const Corpus& corpus, const DataSettings& settings) {
  const bool is_error = settings.long_documents == LongDocuments::Error ||
                        (settings.long_documents == LongDocuments::Auto && corpus.has_mask());
  if (!is_error) return;
  const int64_t most = settings.seq_length + 1;  // the last token is only a label
  for (int64_t d = 0; d < corpus.num_documents(); ++d)
    LETHE_CHECK(
        DataError,
        corpus.document(d).size() <= most,
        "{}: document {} must fit a sequence of {} tokens and a last label{}, got {} tokens; "
        "use longer sequences, leave the document out, or cut such documents with --long-documents "
        "split",
        corpus.name(),
        d,
        settings.seq_length,
        corpus.has_mask() ? ", since a part of it would lose its prompt" : "",
        corpus.document(d).size());
}

// A run on such data would go through without a loss.
void check_counted(const Corpus& corpus) {
  LETHE_CHECK(DataError,
              !corpus.card() || corpus.card()->masked_tokens < corpus.card()->tokens,
              "{}.json: must tell of a token that counts in the loss, got {} of {} masked; give "
              "the records responses, or prepare them with --no-mask-prompts",
              corpus.name(),
              corpus.card()->masked_tokens,
              corpus.card()->tokens);
}

std::string tokenizer_of(const Corpus& corpus) {
  if (corpus.is_byte_text()) return Tokenizer::bytes().fingerprint();
  return corpus.card() ? corpus.card()->tokenizer_fingerprint : "";
}

void check_largest_id(const Corpus& corpus, int64_t vocab_size) {
  LETHE_CHECK(
      DataError,
      !corpus.card() || corpus.card()->largest_id < vocab_size,
      "{}: the largest token id must be below the vocabulary of the model, {}, got {}; prepare "
      "the data with the model's tokenizer, or give the model a vocabulary of at least {}",
      corpus.name(),
      vocab_size,
      corpus.card()->largest_id,
      corpus.card()->largest_id + 1);
}

}  // namespace

LoadedPart::LoadedPart(const DataSettings& settings, size_t index)
    : corpus(Corpus::open(settings.parts[index].path)),
      split((check_counted(corpus),
             check_long_documents(corpus, settings),
             split_corpus(corpus, settings.valid_fraction, settings.seq_length))),
      train(corpus, split.train, settings.seq_length),
      fingerprint(corpus.fingerprint()),
      tokenizer_fingerprint(tokenizer_of(corpus)),
      seed_(settings.seed),
      stream_(index == 0 ? "epoch" : fmt::format("part {} epoch", index)) {
  LETHE_CHECK(
      DataError,
      train.count() <= std::numeric_limits<uint32_t>::max(),
      "{}: must have fewer than 2^32 sequences, got {}; use longer sequences or several parts",
      corpus.name(),
      train.count());
  if (settings.valid_fraction > 0) valid.emplace(corpus, split.valid, settings.seq_length);
}

int64_t LoadedPart::shuffled(int64_t number) {
  const int64_t epoch = number / train.count();
  if (epoch != order_epoch_) {
    order_.resize(static_cast<size_t>(train.count()));
    std::iota(order_.begin(), order_.end(), 0u);
    Random(stream_key(seed_, fmt::format("{} {}", stream_, epoch))).shuffle(std::span(order_));
    order_epoch_ = epoch;
  }
  return order_[static_cast<size_t>(number % train.count())];
}

void check_together(std::span<const std::unique_ptr<LoadedPart>> parts, int64_t vocab_size) {
  const LoadedPart* known = nullptr;
  for (const auto& part : parts) {
    if (known == nullptr && !part->tokenizer_fingerprint.empty()) known = part.get();
    if (part->corpus.is_byte_text()) known = part.get();
  }
  for (const auto& part : parts) {
    // Ids of unknown origin are taken on trust, but they are hardly bytes.
    const bool fits = known == nullptr ||
                      part->tokenizer_fingerprint == known->tokenizer_fingerprint ||
                      (part->tokenizer_fingerprint.empty() && !known->corpus.is_byte_text());
    LETHE_CHECK(
        DataError,
        fits,
        "data: all parts must have the tokens of one tokenizer, got '{}' for '{}' and '{}' for "
        "'{}'; prepare them with the same one",
        known->tokenizer_fingerprint,
        known->corpus.name(),
        part->tokenizer_fingerprint.empty() ? "unknown" : part->tokenizer_fingerprint,
        part->corpus.name());
  }
  const bool is_bytes =
      known != nullptr && known->tokenizer_fingerprint == Tokenizer::bytes().fingerprint();
  LETHE_CHECK(ConfigError,
              !is_bytes || vocab_size >= kByteVocab,
              "--vocab-size: byte-level tokens need at least {} rows, got {}; use --vocab-size {}",
              kByteVocab,
              vocab_size,
              kByteVocab);
  for (const auto& part : parts) check_largest_id(part->corpus, vocab_size);
}

}  // namespace lethe::detail
