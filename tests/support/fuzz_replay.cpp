#include "support/fuzz_replay.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "lethe/io/atomic_file.h"

namespace lethe::test {

FuzzReplay::FuzzReplay(std::string_view corpus, Entry entry, std::string_view words)
    : entry_(entry), words_(words) {
  const std::filesystem::path folder =
      std::filesystem::path(LETHE_SOURCE_DIR) / "tests/fuzz/corpus" / corpus;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder)) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) seeds_.push_back(read_text_file(file));
}

void FuzzReplay::feed(const std::string& input) const {
  EXPECT_EQ(entry_(reinterpret_cast<const uint8_t*>(input.data()), input.size()), 0);
}

// One of: another byte, a flipped bit, a removed piece, a doubled piece, a piece of another seed.
std::string FuzzReplay::mutated(std::string text, std::mt19937_64& random) const {
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  const size_t at = below(text.size());
  const size_t length = below(std::min<size_t>(text.size() - at, 16) + 1);
  const auto& other = seeds_[below(seeds_.size())];
  switch (random() % 5) {
    case 0:
      text.replace(at, text.empty() ? 0 : 1, 1, words_[below(words_.size())]);
      break;
    case 1:
      if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(at, text.substr(at, length));
      break;
    default:
      text.insert(at, other.substr(below(other.size()), length));
      break;
  }
  return text;
}

void FuzzReplay::feed_corpus() const {
  for (const auto& seed : seeds_) feed(seed);
}

void FuzzReplay::feed_mutations(int count) const {
  std::mt19937_64 random(20240607);
  for (int i = 0; i < count; ++i) {
    std::string input = seeds_[static_cast<size_t>(i) % seeds_.size()];
    const auto rounds = 1 + random() % 3;
    for (uint64_t r = 0; r < rounds; ++r) input = mutated(std::move(input), random);
    feed(input);
  }
}

}  // namespace lethe::test
