#include <cstddef>
#include <cstdint>

#include "support/fuzz_replay.h"
#include <gtest/gtest.h>

extern "C" int tokenizer_json_fuzz_entry(const uint8_t* data, size_t size);

namespace lethe {
namespace {

test::FuzzReplay replay() {
  return {
      "tokenizer_json", tokenizer_json_fuzz_entry, "{}[]()\":,0123456789\\pLsd?+*|!=ab <x>\xFF"};
}

TEST(TokenizerJsonFuzz, TheCorpusIsFedWithoutACrash) {
  ASSERT_GE(replay().num_seeds(), 12u);
  replay().feed_corpus();
}

TEST(TokenizerJsonFuzz, ManySeededMutationsAreRefusedOrReadSafely) {
  replay().feed_mutations(3'000);
}

}  // namespace
}  // namespace lethe
