#include "lethe/data/bigram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr int64_t kBlockTokens = 1 << 16;

class PairCounts {
 public:
  explicit PairCounts(const Corpus& corpus) : corpus_(corpus) {}

  void add_document(TokenRange document) {
    int64_t before = -1;
    for (int64_t begin = document.begin; begin < document.end; begin += kBlockTokens) {
      block_.resize(static_cast<size_t>(std::min(kBlockTokens, document.end - begin)));
      corpus_.read(begin, block_);
      for (const int64_t id : block_) {
        LETHE_CHECK(DataError,
                    id >= 0 && id < kByteVocab,
                    "{}: tokens of bytes must be below {}, got {}; this is other data",
                    corpus_.name(),
                    kByteVocab,
                    id);
        if (before >= 0) ++count_[static_cast<size_t>(before * kByteVocab + id)];
        pairs_ += before >= 0 ? 1 : 0;
        before = id;
      }
    }
  }

  [[nodiscard]] int64_t pairs() const { return pairs_; }

  [[nodiscard]] double entropy() const {
    double sum = 0;
    for (size_t a = 0; a < static_cast<size_t>(kByteVocab); ++a) {
      const std::span<const int64_t> row(&count_[a * kByteVocab], kByteVocab);
      int64_t total = 0;
      for (const int64_t n : row) total += n;
      for (const int64_t n : row)
        if (n > 0)
          sum -= static_cast<double>(n) *
                 std::log(static_cast<double>(n) / static_cast<double>(total));
    }
    return sum / static_cast<double>(pairs_);
  }

 private:
  const Corpus& corpus_;
  std::vector<int64_t> block_;
  std::vector<int64_t> count_ = std::vector<int64_t>(static_cast<size_t>(kByteVocab * kByteVocab));
  int64_t pairs_ = 0;
};

}  // namespace

double bigram_entropy(const Corpus& corpus, TokenRange within) {
  PairCounts counts(corpus);
  corpus.for_each_document(within,
                           [&](int64_t, TokenRange document) { counts.add_document(document); });
  LETHE_CHECK(DataError,
              counts.pairs() > 0,
              "data: a document must have two bytes, got {} bytes in documents of at most one; use "
              "more text",
              within.size());
  return counts.entropy();
}

}  // namespace lethe
