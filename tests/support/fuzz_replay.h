#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lethe::test {

/// A fuzz target without a fuzzer: its entry is fed the committed corpus and seeded mutations of
/// it.
class FuzzReplay {
 public:
  using Entry = int (*)(const uint8_t* data, size_t size);

  /// corpus: folder below tests/fuzz/corpus. words: bytes that mean something to the format; new
  /// bytes are taken from them.
  FuzzReplay(std::string_view corpus, Entry entry, std::string_view words);

  [[nodiscard]] size_t num_seeds() const { return seeds_.size(); }

  /// Every file of the corpus, in order of the names. A crash ends the test program; an entry that
  /// does not return 0 is a failure of the test.
  void feed_corpus() const;

  /// `count` inputs, each a file of the corpus changed in one to three places. Same inputs each
  /// time.
  void feed_mutations(int count) const;

 private:
  void feed(const std::string& input) const;
  std::string mutated(std::string text, std::mt19937_64& random) const;

  Entry entry_;
  std::string words_;
  std::vector<std::string> seeds_;
};

}  // namespace lethe::test
