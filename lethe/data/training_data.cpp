#include "lethe/data/training_data.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "lethe/base/error.h"
#include "lethe/base/random.h"
#include "lethe/data/bigram.h"
#include "lethe/data/data_part_impl.h"
#include "lethe/data/tokenizer.h"
#include "lethe/io/file_facts.h"

namespace lethe {
namespace {

using detail::LoadedPart;

void check_settings(const DataSettings& s) {
  LETHE_CHECK(ConfigError,
              !s.parts.empty(),
              "data: there must be at least one file or folder, got none; name one");
  for (const DataPart& part : s.parts)
    LETHE_CHECK(
        ConfigError,
        part.weight > 0 && part.weight <= std::numeric_limits<double>::max(),
        "data: the weight of '{}' must be > 0, got {}; leave the part out to train without it",
        part.path,
        part.weight);
  LETHE_CHECK(ConfigError,
              s.seq_length >= 1 && s.seq_length <= std::numeric_limits<int32_t>::max(),
              "data: the sequence length must be >= 1 and < 2^31, got {}; correct the setting",
              s.seq_length);
  const int64_t most = std::numeric_limits<int32_t>::max() / s.seq_length;
  LETHE_CHECK(
      ConfigError,
      s.sequences_per_batch >= 1 && s.sequences_per_batch <= most,
      "data: a microbatch must have 1 to {} sequences of {} tokens, got {}; correct the setting",
      most,
      s.seq_length,
      s.sequences_per_batch);
  LETHE_CHECK(
      ConfigError,
      s.valid_fraction == 0 || s.valid_batches >= 1,
      "data: the number of validation batches must be >= 1, got {}; correct the setting, or "
      "keep no validation data (--valid-fraction 0)",
      s.valid_batches);
}

// Tokens of a file up to which every start reads all of them for a single figure.
constexpr int64_t kMostBigramTokens = int64_t{64} << 20;

// Index of the part that is furthest behind its share once one more sample is taken, among those
// that have one left; the first of equal ones.
size_t furthest_behind(std::span<const double> shares,
                       std::span<const int64_t> taken,
                       const std::function<bool(size_t)>& has_more) {
  const auto next = static_cast<double>(std::accumulate(taken.begin(), taken.end(), int64_t{1}));
  size_t best = shares.size();
  double most = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double behind = shares[i] * next - static_cast<double>(taken[i]);
    if (!has_more(i) || (best < shares.size() && behind <= most)) continue;
    best = i;
    most = behind;
  }
  return best;
}

}  // namespace

struct TrainingData::Impl {
  DataSettings settings;
  std::vector<std::unique_ptr<LoadedPart>> parts;  // Sequences points to the Corpus beside it
  std::vector<double> shares;                      // weights that sum to 1
  std::vector<int64_t> taken;                      // samples, by part
  std::vector<Batch> valid_batches;
  DataFacts facts;

  explicit Impl(const DataSettings& s) : settings((check_settings(s), s)), taken(s.parts.size()) {
    for (size_t i = 0; i < s.parts.size(); ++i)
      parts.push_back(std::make_unique<LoadedPart>(settings, i));
    detail::check_together(parts, s.vocab_size);
    double sum = 0;
    for (const DataPart& part : s.parts) sum += part.weight;
    for (const DataPart& part : s.parts) shares.push_back(part.weight / sum);
    if (s.valid_fraction > 0) make_valid_batches();
    collect_facts();
  }

  void make_valid_batches() {
    int64_t total = 0;
    for (const auto& part : parts) total += part->valid->count();
    const int64_t size = settings.sequences_per_batch;
    const int64_t count = std::min(settings.valid_batches, total) * size;
    std::vector<int64_t> used(parts.size());
    for (int64_t n = 0; n < std::min(count, total); ++n) {
      const size_t i = furthest_behind(
          shares, used, [&](size_t p) { return used[p] < parts[p]->valid->count(); });
      if (n % size == 0) valid_batches.emplace_back();
      parts[i]->valid->append_to(valid_batches.back(), used[i]++, settings.vocab_size);
    }
  }

  void collect_facts() {
    for (const auto& part : parts) {
      facts.train_tokens += part->split.train.size();
      facts.valid_tokens += part->split.valid.size();
      facts.documents += part->corpus.num_documents();
      facts.sequences += part->train.count();
      facts.dropped_tokens += part->train.unused_tokens();
      if (facts.tokenizer_fingerprint.empty())
        facts.tokenizer_fingerprint = part->tokenizer_fingerprint;
      const auto& card = part->corpus.card();
      if (card) facts.tokenizer_vocab_size = card->vocab_size;
      const std::string file = part->corpus.name() + ".tokenizer.json";
      if (facts.tokenizer_json.empty() && card && file_exists(file)) facts.tokenizer_json = file;
    }
    const bool is_bytes = facts.tokenizer_fingerprint == Tokenizer::bytes().fingerprint();
    facts.unit = is_bytes ? "byte" : "token";
    if (is_bytes) facts.tokenizer_vocab_size = kByteVocab;
    if (!is_bytes || parts.size() > 1) return;
    // A masked token is no part of the loss that the figure is compared with.
    const LoadedPart& part = *parts[0];
    if (part.corpus.is_byte_text() ||
        (!part.corpus.has_mask() && part.split.train.size() <= kMostBigramTokens))
      facts.bigram_loss = bigram_entropy(part.corpus, part.split.train);
  }
};

TrainingData::TrainingData(const DataSettings& settings)
    : impl_(std::make_unique<Impl>(settings)) {}

TrainingData::~TrainingData() = default;

Batch TrainingData::next() {
  Impl& data = *impl_;
  Batch batch;
  for (int64_t i = 0; i < data.settings.sequences_per_batch; ++i) {
    const size_t p = furthest_behind(data.shares, data.taken, [](size_t) { return true; });
    LoadedPart& part = *data.parts[p];
    part.train.append_to(batch, part.shuffled(data.taken[p]), data.settings.vocab_size);
    ++data.taken[p];
  }
  return batch;
}

DataPosition TrainingData::position() const {
  DataPosition position{.seed = impl_->settings.seed,
                        .seq_length = impl_->settings.seq_length,
                        .valid_fraction = impl_->settings.valid_fraction};
  for (size_t i = 0; i < impl_->parts.size(); ++i) {
    const LoadedPart& part = *impl_->parts[i];
    position.next_sample += impl_->taken[i];
    position.parts.push_back({.path = impl_->settings.parts[i].path,
                              .fingerprint = part.fingerprint,
                              .weight = impl_->settings.parts[i].weight,
                              .sequences = part.train.count(),
                              .next_sample = impl_->taken[i]});
  }
  return position;
}

void TrainingData::restore(const DataPosition& position) {
  const DataPosition here = this->position();
  std::string differing;
  const auto compare = [&](const std::string& what, const auto& then, const auto& now) {
    if (then == now) return;
    differing += fmt::format("{}{} was {}, is {}", differing.empty() ? "" : "; ", what, then, now);
  };
  compare("the seed", position.seed, here.seed);
  compare("the sequence length", position.seq_length, here.seq_length);
  compare("--valid-fraction", position.valid_fraction, here.valid_fraction);
  compare("the number of parts", position.parts.size(), here.parts.size());
  for (size_t i = 0; i < std::min(position.parts.size(), here.parts.size()); ++i) {
    const DataPosition::Part &then = position.parts[i], &now = here.parts[i];
    compare(fmt::format("the weight of '{}'", now.path), then.weight, now.weight);
    compare(fmt::format("the content of '{}' (then '{}'; SHA-256)", now.path, then.path),
            then.fingerprint,
            now.fingerprint);
  }
  LETHE_CHECK(CheckpointError,
              differing.empty(),
              "data position: data and settings must be those of the checkpoint, got others ({}); "
              "restore them, or start a new run from the checkpoint's weights",
              differing);
  for (size_t i = 0; i < position.parts.size(); ++i)
    impl_->taken[i] = position.parts[i].next_sample;
}

const std::vector<Batch>& TrainingData::valid_batches() const {
  return impl_->valid_batches;
}

const DataFacts& TrainingData::facts() const {
  return impl_->facts;
}

}  // namespace lethe
