#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/io/atomic_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lethe {
namespace {

// The fuzz target without a fuzzer: the committed corpus, then seeded mutations of it.
std::vector<std::string> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& file :
       std::filesystem::directory_iterator(LETHE_SOURCE_DIR "/tests/fuzz/corpus/safetensors"))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const auto& file : files) out.push_back(read_text_file(file));
  return out;
}

void feed(const std::string& input) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
            0);
}

// One of: another byte, a flipped bit, a removed piece, a doubled piece, a piece of another seed.
std::string mutated(std::string text,
                    const std::vector<std::string>& seeds,
                    std::mt19937_64& random) {
  static const std::string kWords = "{}[]\":,0123456789-.eE\\ aFIU_\0\xFF";
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  const size_t at = below(text.size());
  const size_t length = below(std::min<size_t>(text.size() - at, 16) + 1);
  const auto& other = seeds[below(seeds.size())];
  switch (random() % 5) {
    case 0:
      text.replace(at, text.empty() ? 0 : 1, 1, kWords[below(kWords.size())]);
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

TEST(SafetensorsFuzz, TheCorpusIsFedWithoutACrash) {
  const auto seeds = corpus();
  ASSERT_GE(seeds.size(), 12u);
  for (const auto& seed : seeds) feed(seed);
}

TEST(SafetensorsFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  const auto seeds = corpus();
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 100'000; ++i) {
    std::string input = seeds[static_cast<size_t>(i) % seeds.size()];
    const auto rounds = 1 + random() % 3;
    for (uint64_t r = 0; r < rounds; ++r) input = mutated(std::move(input), seeds, random);
    feed(input);
  }
}

}  // namespace
}  // namespace lethe
